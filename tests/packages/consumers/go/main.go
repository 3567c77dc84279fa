// Command search prints the path and the first line of each result.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/memoryd/memoryd/clients/go/memoryd"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

func main() {
	client, err := memoryd.Connect()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	found, err := client.Search(context.Background(), &memorydv1.MemorySearchRequest{Query: os.Args[1]})
	if err != nil {
		log.Fatal(err)
	}
	for _, hit := range found.GetResults() {
		line, _, _ := strings.Cut(hit.GetSnippet(), "\n")
		fmt.Printf("%s: %s\n", hit.GetPath(), line)
	}
}
