from benchmarks.main import main

raise SystemExit(main())
