package jobs

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestFolderFillsWhileItIsListed: a listing of a folder that was empty a moment ago is no fault.
func TestFolderFillsWhileItIsListed(t *testing.T) {
	t.Parallel()
	v := &volume{dir: t.TempDir()}
	ctx, stop := context.WithCancel(t.Context())
	var filling sync.WaitGroup
	filling.Go(func() {
		for ctx.Err() == nil {
			name := filepath.Join(v.dir, "new")
			_ = os.WriteFile(name, nil, 0o600)
			_ = os.Remove(name)
		}
	})

	for range 2000 {
		if _, err := v.listSegments(); err != nil {
			t.Error(err)
			break
		}
	}
	stop()
	filling.Wait()
}
