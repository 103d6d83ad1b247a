"""What a start defers until the platform is ready."""

import subprocess
import sys


def test_up_imports_no_graph_library_before_the_platform_is_ready() -> None:
    program = (
        "import sys, starling.app.cli.up;"
        "print({'langgraph', 'langchain_core', 'langsmith', 'langchain', 'requests'} & sys.modules.keys())"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
