// Goroutines, files, a server and its clients, other programs: the system interfaces that Go's
// runtime uses.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func many(what string, count int, each func(int) string) {
	var group sync.WaitGroup
	ends := make(map[string]int)
	var lock sync.Mutex
	for index := 0; index < count; index++ {
		group.Add(1)
		go func() {
			defer group.Done()
			end := each(index)
			lock.Lock()
			ends[end]++
			lock.Unlock()
		}()
	}
	group.Wait()
	fmt.Println(what, ends)
}

func main() {
	if len(os.Args) > 1 {
		input, err := io.ReadAll(os.Stdin)
		must(err)
		where, err := os.Getwd()
		must(err)
		fmt.Print(os.Args[1], string(input), where)
		return
	}
	must(os.Mkdir("/srv/go", 0o755))
	must(os.Chdir("/srv/go"))
	where, err := os.Executable()
	must(err)
	fmt.Println(where)
	someone, err := user.Current()
	must(err)
	fmt.Println(someone.Username, someone.HomeDir)

	many("locked to threads", 200, func(index int) string {
		runtime.LockOSThread()
		name := fmt.Sprintf("t%d", index)
		must(os.WriteFile(name, []byte("x"), 0o600))
		must(os.Chown(name, 5, 6))
		facts, err := os.Stat(name)
		must(err)
		must(os.Remove(name))
		return fmt.Sprint(facts.Mode(), facts.Sys().(*syscall.Stat_t).Uid)
	})
	many("exec", 40, func(int) string {
		command := exec.Command(where, "again")
		command.Stdin = strings.NewReader(" in ")
		output, err := command.CombinedOutput()
		must(err)
		return string(output)
	})
	many("as another", 8, func(int) string {
		command := exec.Command("/usr/bin/id", "-u")
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 7, Gid: 8}}
		output, err := command.Output()
		must(err)
		return strings.TrimSpace(string(output))
	})
	_, err = exec.Command("/nowhere").Output()
	fmt.Println(err)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go http.Serve(listener, http.FileServer(http.Dir("/etc")))
	many("http", 50, func(int) string {
		answer, err := http.Get("http://" + listener.Addr().String() + "/debian_version")
		must(err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		must(err)
		right, err := os.ReadFile("/etc/debian_version")
		must(err)
		return fmt.Sprint(answer.StatusCode, bytes.Equal(body, right))
	})
	local, err := net.Listen("unix", "socket")
	must(err)
	go func() { one, _ := local.Accept(); io.Copy(one, strings.NewReader("hello")); one.Close() }()
	one, err := net.Dial("unix", "/srv/go/socket")
	must(err)
	said, err := io.ReadAll(one)
	fmt.Println(string(said), err)

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	must(syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	fmt.Println(<-signals)
	func() {
		defer func() { fmt.Println(recover()) }()
		var pointer *int
		fmt.Println(*pointer)
	}()
	// The runtime stops goroutines by signals, in the middle of calls too.
	stop := time.Now().Add(300 * time.Millisecond)
	many("busy", 4, func(int) string {
		for time.Now().Before(stop) {
			if _, err := os.Stat("/etc/passwd"); err != nil {
				return err.Error()
			}
			runtime.GC()
		}
		return "fine"
	})
	names, err := filepath.Glob("/etc/host*")
	must(err)
	sort.Strings(names)
	fmt.Println(strings.Contains(strings.Join(names, " "), "/etc/hostname /etc/hosts"))
}
