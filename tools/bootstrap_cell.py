# Set-up: nothing happens where the course is installed. On Colab it is fetched; what is installed stays as it is.
import importlib.metadata
import importlib.util
import subprocess
import sys

REPOSITORY = ""
if importlib.util.find_spec("course_utils") is None:
    if not REPOSITORY:
        raise ModuleNotFoundError(
            f"{sys.executable} has no course_utils. See 'Install' in README.md, or pick its kernel."
        )
    with open("keep.txt", "w", encoding="utf-8") as keep:
        keep.writelines(f"{d.name}=={d.version}\n" for d in importlib.metadata.distributions() if d.name)
    course = f"pencil-and-lead @ git+{REPOSITORY}"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "-c", "keep.txt", course], check=True)
