package words

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

func TestCount(t *testing.T) {
	if counts := Count("a b a"); counts["a"] != 2 || counts["b"] != 1 {
		t.Fatal(counts)
	}
}

func TestFilesAndPrograms(t *testing.T) {
	t.Setenv("PLACE", t.TempDir())
	var group sync.WaitGroup
	for index := range 20 {
		group.Add(1)
		go func() {
			defer group.Done()
			name := filepath.Join(os.Getenv("PLACE"), fmt.Sprint(index))
			if output, err := exec.Command("/bin/sh", "-c", "pwd > "+name).CombinedOutput(); err != nil {
				t.Error(err, string(output))
			}
			said, err := os.ReadFile(name)
			where, _ := os.Getwd()
			if err != nil || string(said) != where+"\n" {
				t.Error(err, string(said))
			}
		}()
	}
	group.Wait()
}
