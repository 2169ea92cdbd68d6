package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Two nodes that claim a volume at the same moment are not both told that it is theirs.
func TestClaimAtTheSameMoment(t *testing.T) {
	for range 50 {
		dir := t.TempDir()
		path := filepath.Join(dir, contentFile)
		var wg sync.WaitGroup
		start, errs := make(chan struct{}), make([]error, 4)
		for i := range errs {
			wg.Go(func() {
				<-start
				errs[i] = claimVolume(path, fmt.Sprint("node", i))
			})
		}

		close(start)
		wg.Wait()
		won := -1
		for i, err := range errs {
			switch {
			case err == nil && won >= 0:
				t.Fatalf("node%d and node%d have claimed it", won, i)
			case err == nil:
				won = i
			case !strings.Contains(err.Error(), "holds the data of node"):
				t.Fatal(err)
			}
		}

		if won < 0 {
			t.Fatal("nobody has it")
		}

		if err := claimVolume(path, fmt.Sprint("node", won)); err != nil {
			t.Errorf("again: %v", err)
		}

		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%v %v", left, err)
		}
	}
}
