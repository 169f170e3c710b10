// A module of two packages, to be built, tested and vetted by Go's own programs inside.
package main

import (
	"fmt"
	"os"

	"example.org/module/words"
)

func main() {
	fmt.Println(words.Count("a b a"), len(os.Args))
}
