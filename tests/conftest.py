"""What has to be loaded once for all tests.

pytester forgets the modules that a test loaded; onnx's compiled part cannot be loaded twice in one process and ends it.
"""

import onnx  # noqa: F401
