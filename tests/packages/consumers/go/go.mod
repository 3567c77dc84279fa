module example.com/memoryd-consumer

go 1.24.0
