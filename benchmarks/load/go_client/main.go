// The searches of client.py, with the Go client: less CPU time for each call. It reads and writes the same JSON, except
// that the only kind of call is a search.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/memoryd/memoryd/clients/go/memoryd"
	memorydv1 "github.com/memoryd/memoryd/clients/go/memoryd/v1"
)

type request struct {
	Address     string   `json:"address"`
	Addresses   []string `json:"addresses"`
	Connections int      `json:"connections"`
	Token       string   `json:"token"`
	Concurrency int      `json:"concurrency"`
	Seconds     float64  `json:"seconds"`
	Questions   []string `json:"questions"`
}

type report struct {
	TimesMS    map[string][]float64 `json:"times_ms"`
	Errors     map[string]int       `json:"errors"`
	Seconds    float64              `json:"seconds"`
	CPUSeconds float64              `json:"cpu_seconds"`
}

func main() {
	var told request
	if err := json.NewDecoder(os.Stdin).Decode(&told); err != nil {
		log.Fatal(err)
	}
	found, err := load(told)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}

func load(told request) (report, error) {
	addresses := told.Addresses
	if len(addresses) == 0 {
		addresses = []string{told.Address}
	}
	clients := make([]*memoryd.Client, max(told.Connections, 1))
	for number := range clients {
		options := []memoryd.Option{memoryd.WithAddress(addresses[number%len(addresses)])}
		if told.Token != "" {
			options = append(options, memoryd.WithToken(told.Token))
		}
		client, err := memoryd.Connect(options...)
		if err != nil {
			return report{}, err
		}
		defer client.Close()
		clients[number] = client
	}
	found := report{TimesMS: map[string][]float64{}, Errors: map[string]int{}}
	var lock sync.Mutex
	var callers sync.WaitGroup
	began := time.Now()
	ends := began.Add(time.Duration(told.Seconds * float64(time.Second)))
	for number := range told.Concurrency {
		callers.Go(func() {
			times, errors := search(clients[number%len(clients)], told.Questions, number, ends)
			lock.Lock()
			defer lock.Unlock()
			found.TimesMS["search"] = append(found.TimesMS["search"], times...)
			for message, count := range errors {
				found.Errors[message] += count
			}
		})
	}
	callers.Wait()
	found.Seconds = time.Since(began).Seconds()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return report{}, err
	}
	found.CPUSeconds = float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
	return found, nil
}

// search makes searches one after the other until a time, and returns their milliseconds and the errors.
func search(client *memoryd.Client, questions []string, first int, ends time.Time) ([]float64, map[string]int) {
	var times []float64
	errors := map[string]int{}
	for number := first; time.Now().Before(ends); number++ {
		began := time.Now()
		answer, err := client.Search(context.Background(), &memorydv1.MemorySearchRequest{
			Query: questions[number%len(questions)],
		})
		if err != nil {
			errors[err.Error()]++
		} else if len(answer.GetResults()) == 0 {
			errors["a search found nothing"]++
		}
		times = append(times, float64(time.Since(began).Microseconds())/1000)
	}
	return times, errors
}
