package main

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestImageIsAsOldAsItsNewestPart: not older, so that a new image is not said to lack
// months of fixes, and not newer, so that the same parts give the same bytes (B2).
func TestImageIsAsOldAsItsNewestPart(t *testing.T) {
	const commit, older, newer = 1795000000, 1794000000, 1796000000
	for _, c := range []struct {
		name          string
		given, commit int64
		newest        int64
		want          int64 // 0: an error
	}{
		{name: "commit", commit: commit, newest: older, want: commit},
		{name: "package", commit: commit, newest: newer, want: newer},
		{name: "packages of an old cache", commit: commit, want: commit},
		{name: "no commit", newest: newer, want: newer},
		{name: "given", given: 1, commit: commit, newest: newer, want: 1},
		{name: "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var newest time.Time
			if c.newest != 0 {
				newest = time.Unix(c.newest, 0)
			}

			at, from, err := (&epoch{given: c.given, commit: c.commit}).buildTime(newest)
			if (err != nil) != (c.want == 0) || err == nil && at.Unix() != c.want {
				t.Errorf("%v %s %v, want %d", at, from, err, c.want)
			}
		})
	}

	t.Setenv("SOURCE_DATE_EPOCH", "")
	var e epoch
	e.addFlags(&cobra.Command{})
	if e.given != 0 {
		t.Errorf("without SOURCE_DATE_EPOCH it is %d", e.given)
	}
}
