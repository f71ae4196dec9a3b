"""``python -m bidirl``."""

import sys

from bidirl.cli.main import main

sys.exit(main())
