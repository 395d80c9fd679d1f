module gpushare.playground/pause

go 1.26.0
