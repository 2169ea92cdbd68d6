package diff

import (
	"fmt"
	"slices"
	"strings"
)

// refused is a file of which cannot be told what it gives.
type refused struct {
	file, reason string
	same         bool
	count        int // minions
	minion       string
}

// refusedFiles are the files of a report of which cannot be told what they give. Its zero value is empty.
type refusedFiles struct {
	Refused  []*refused
	Unlisted int // files beyond maxRefused, each counted for each minion

	byText map[string]*refused
}

// noteRefused counts a file for a minion. It returns false if there are too many files to list this one.
func (r *refusedFiles) noteRefused(minion string, file refused) (isListed bool) {
	key := fmt.Sprint(file.file, "\x00", file.reason, file.same)
	known := r.byText[key]
	if known == nil {
		if len(r.byText) >= maxRefused {
			r.Unlisted++
			return false
		}
		if r.byText == nil {
			r.byText = map[string]*refused{}
		}
		known = &file
		known.minion = minion
		r.byText[key] = known
	}

	known.count++
	known.minion = min(known.minion, minion)
	return true
}

// sortRefused sets Refused when all files are counted.
func (r *refusedFiles) sortRefused() {
	for _, f := range r.byText {
		r.Refused = append(r.Refused, f)
	}
	slices.SortFunc(r.Refused, func(a, b *refused) int {
		return strings.Compare(a.file+"\x00"+a.reason, b.file+"\x00"+b.reason)
	})
}
