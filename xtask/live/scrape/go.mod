module spanprof/live/scrape

go 1.26
