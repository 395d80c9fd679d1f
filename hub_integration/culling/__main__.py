"""``python -m hub_integration.culling``: the culler, where the command is not on the path."""

from hub_integration.culling.app import main

if __name__ == "__main__":
    main()
