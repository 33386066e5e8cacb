"""The fixed words of synthetic prompts: small questions, and what is asked about code. Data only."""

LANGUAGES = (
    "Bash",
    "C",
    "C++",
    "Go",
    "Haskell",
    "Java",
    "JavaScript",
    "Kotlin",
    "Python",
    "Ruby",
    "Rust",
    "Swift",
)
TASKS = (
    "add two matrices",
    "check a palindrome",
    "copy a file",
    "count words",
    "decode base64",
    "download a page",
    "find a substring",
    "find the median",
    "flatten a list",
    "format a date",
    "hash a password",
    "list a folder",
    "merge two maps",
    "parse JSON",
    "pick a random item",
    "read a CSV file",
    "remove duplicates",
    "reverse a string",
    "round to two digits",
    "shuffle a list",
    "sort by length",
    "split a path",
    "start a thread",
    "time a function",
)
LIGHT_FORMS = (
    "Write {language} code to {task}.",
    "In {language}, how do I {task}?",
    "How to {task} in {language}?",
)

CODE_QUESTIONS = (
    "Explain what this code does and name one thing that could go wrong.",
    "Write unit tests for the functions above.",
    "Which function above is the hardest to read? Rewrite it.",
    "Add type annotations to the functions above.",
    "Find a bug or an edge case above and show the fix.",
    "Write a docstring for each public function above.",
)
FOLLOW_UPS = (
    "This code calls it. Does your answer still hold?",
    "Now make the same change here.",
    "Here is related code. What would you share between the two?",
    "Compare this with the code from before: which handles errors better?",
    "Rewrite this in the style of your last answer.",
)
SHARED_INSTRUCTION = "You are a coding assistant. Answer briefly. The project's code follows."
