"""What the twenty conversations are about: facts that are said early and needed late. Written by hand.

In every second one the limit is said as a fact ("boards with 40 MB"), not as a rule ("must not"): no list of words that mark
a rule finds those. The amount of data is never said as a rule.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topic:
    """One conversation's facts. `*_mark` is what a prompt must show for the fact to be there.

    module   the file the user works on, and `entry` its function
    limit    what the user says first, and never again
    error    the line that a run ends with
    helper   the class that the assistant introduces, in the file `helper_path`
    amount   what the user says of the data
    """

    subject: str
    module: str
    entry: str
    limit: str
    limit_mark: str
    error: str
    helper: str
    helper_path: str
    amount: str
    amount_mark: str


TOPICS = (
    Topic(
        "the invoice store", "billing/invoice_store.py", "load_invoice",
        "It must not hold more than 40 MB in memory.", "40 MB", "KeyError: 'customer_id'",
        "InvoiceIndex", "billing/invoice_index.py", "Our largest customer has 18,000 invoices.", "18,000",
    ),
    Topic(
        "the retry loop of our HTTP client", "net/retrying.py", "send_with_retries",
        "The pager goes off after 7 seconds without an answer.", "7 seconds", "TimeoutError: no answer from upstream-3",
        "RetryBudget", "net/retry_budget.py", "On a bad day one call in 450 fails.", "call in 450",
    ),
    Topic(
        "the log parser", "ingest/log_parser.py", "parse_line",
        "Never read a whole file at once: some are 90 GB.", "90 GB", "UnicodeDecodeError: invalid start byte 0xfe",
        "LineReader", "ingest/line_reader.py", "A line has 2,300 characters on average.", "2,300",
    ),
    Topic(
        "the thumbnail worker", "media/thumbnails.py", "make_thumbnail",
        "It runs on boards with 512 MB of memory.", "512 MB", "OSError: image file is truncated (14 bytes not processed)",
        "ImageQueue", "media/image_queue.py", "We get 75 images a second.", "75 images",
    ),
    Topic(
        "the permission check", "auth/permissions.py", "is_allowed",
        "It must answer within 3 milliseconds.", "3 milliseconds", "RecursionError: maximum recursion depth exceeded",
        "RoleGraph", "auth/role_graph.py", "Some users are in 640 groups.", "640 groups",
    ),
    Topic(
        "the order book", "trading/order_book.py", "match_order",
        "Prices have 6 digits behind the point everywhere.", "6 digits", "ValueError: price is not a multiple of the tick",
        "PriceLadder", "trading/price_ladder.py", "There are 12,500 open orders at noon.", "12,500",
    ),
    Topic(
        "the search index", "search/indexer.py", "add_document",
        "Only the standard library, and Python 3.11 at most.", "Python 3.11", "IndexError: posting list 4411 is empty",
        "PostingList", "search/posting_list.py", "It holds 3.2 million documents.", "3.2 million",
    ),
    Topic(
        "the migration script", "db/migrate.py", "apply_migration",
        "The database is Oracle 12, as long as the bank has it.", "Oracle 12", "sqlite3.OperationalError: no such table",
        "MigrationPlan", "db/migration_plan.py", "The largest table has 410 columns.", "410 columns",
    ),
    Topic(
        "the rate limiter", "edge/limiter.py", "try_acquire",
        "It must work without Redis, which is down each Sunday.", "without Redis", "ZeroDivisionError: division by zero",
        "TokenBucket", "edge/token_bucket.py", "We have 9,100 tenants.", "9,100",
    ),
    Topic(
        "the CSV importer", "imports/csv_import.py", "import_rows",
        "Files come in Shift-JIS from the branch in Osaka.", "Shift-JIS", "csv.Error: line contains NUL",
        "RowChecker", "imports/row_checker.py", "A file has 88 columns.", "88 columns",
    ),
    Topic(
        "the job scheduler", "jobs/scheduler.py", "next_job",
        "A job may never start twice, not even after a crash.", "never start twice", "AssertionError: job 31 left the heap",
        "LeaseTable", "jobs/lease_table.py", "Jobs take 26 minutes.", "26 minutes",
    ),
    Topic(
        "the metrics exporter", "obs/exporter.py", "render_page",
        "The scraper gives up on pages of more than 5 MiB.", "5 MiB", "RuntimeError: dictionary changed size",
        "SeriesTable", "obs/series_table.py", "There are 7,700 series.", "7,700",
    ),
    Topic(
        "the diff view", "review/diff_view.py", "split_hunks",
        "Please keep the public names: 14 teams import them.", "14 teams", "TypeError: unsupported operand NoneType",
        "HunkIterator", "review/hunk_iterator.py", "A review has 230 files at worst.", "230 files",
    ),
    Topic(
        "the mail sender", "mail/sender.py", "send_batch",
        "The relay takes 50 recipients a message.", "50 recipients", "smtplib.SMTPServerDisconnected: closed by relay-2",
        "BatchSplitter", "mail/batch_splitter.py", "The newsletter goes to 61,000 people.", "61,000",
    ),
    Topic(
        "the config loader", "core/config_loader.py", "load_settings",
        "Unknown keys must be errors, as the audit of 2024 demands.", "audit of 2024", "tomllib.TOMLDecodeError: line 12",
        "SettingSchema", "core/setting_schema.py", "There are 135 settings.", "135 settings",
    ),
    Topic(
        "the sensor gateway", "iot/gateway.py", "read_sensor",
        "The link carries 1,200 baud.", "1,200 baud", "struct.error: unpack requires a buffer of 9 bytes",
        "FrameDecoder", "iot/frame_decoder.py", "A site has 48 sensors.", "48 sensors",
    ),
    Topic(
        "the cache in front of the catalogue", "shop/catalogue_cache.py", "get_product",
        "An entry must be gone 90 seconds after a price changes.", "90 seconds", "KeyError: 'sku-0071'",
        "ExpiryHeap", "shop/expiry_heap.py", "The catalogue has 270,000 products.", "270,000",
    ),
    Topic(
        "the PDF report", "reports/pdf_report.py", "build_report",
        "The printer in the warehouse knows PDF 1.4 and nothing newer.", "PDF 1.4", "ValueError: page 0 is out of range",
        "PageLayout", "reports/page_layout.py", "A report has 1,050 rows.", "1,050 rows",
    ),
    Topic(
        "the websocket hub", "live/hub.py", "broadcast",
        "One slow reader must never hold up the others.", "slow reader", "ConnectionResetError: peer 10.0.0.7",
        "SendQueue", "live/send_queue.py", "There are 5,600 readers in the evening.", "5,600",
    ),
    Topic(
        "the type checker plugin", "lint/checker.py", "check_call",
        "CI gives it 11 minutes on one core.", "11 minutes", "AttributeError: 'Star' object has no attribute 'id'",
        "ScopeStack", "lint/scope_stack.py", "The code base has 940 packages.", "940 packages",
    ),
)  # fmt: skip
