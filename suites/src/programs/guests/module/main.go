// A module of two packages, which Go's own tools build, test and vet inside.
package main

import (
	"fmt"
	"os"

	"example.org/module/words"
)

func main() {
	fmt.Println(words.Count("a b a"), len(os.Args))
}
