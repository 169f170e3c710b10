// Package words counts words.
package words

import "strings"

// Count tells how often each word comes.
func Count(text string) map[string]int {
	counts := make(map[string]int)
	for _, word := range strings.Fields(text) {
		counts[word]++
	}
	return counts
}
