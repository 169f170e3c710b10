// `service serve` is a server of HTTP on port 80, `service call` its client at `go`.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"errors"
)

func serve() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		count, _ := io.Copy(io.Discard, r.Body)
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintf(w, "%d from %s", count, host)
	})
	listener, err := net.Listen("tcp", ":80")
	if err != nil {
		panic(err)
	}
	fmt.Println("ready", listener.Addr())
	panic(http.Serve(listener, nil))
}

func call(network string) {
	name, _ := os.Hostname()
	own, err := net.LookupHost(name)
	fmt.Println(len(own), err)
	var wait sync.WaitGroup
	var lock sync.Mutex
	right := 0
	for number := range 50 {
		wait.Go(func() {
			answer, err := http.Post("http://go/", "text/plain", strings.NewReader(strings.Repeat("x", number*1000)))
			if err != nil {
				fmt.Println(err)
				return
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(answer.Body)
			lock.Lock()
			defer lock.Unlock()
			if string(text) == fmt.Sprintf("%d from %s", number*1000, own[0]) {
				right++
			} else {
				fmt.Println(string(text))
			}
		})
	}
	wait.Wait()
	fmt.Println(right)
	// Only a server has these.
	found, err := net.DefaultResolver.LookupIP(context.Background(), "ip4", "go."+network)
	fmt.Println(len(found), err)
	_, services, err := net.LookupSRV("80", "tcp", "go."+network)
	fmt.Println(len(services), err)
	_, err = net.LookupHost("nobody." + network)
	var missing *net.DNSError
	fmt.Println(errors.As(err, &missing) && missing.IsNotFound)
	_, err = net.Dial("tcp", "go:81")
	fmt.Println(errors.Is(err, syscall.ECONNREFUSED))
	udp, err := net.ListenPacket("udp", ":0")
	fmt.Println(udp.LocalAddr().Network(), err)
}

func main() {
	if os.Args[1] == "serve" {
		serve()
	} else {
		call(os.Args[2])
	}
}
