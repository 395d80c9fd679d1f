from hub_integration.dashboard.app import main

main()
