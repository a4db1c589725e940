module check

go 1.24
