package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/hashicorp/go-multierror"

	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// TestEveryErrnoOfAPreparation: what keeps a service from its start is a disk that is full, files
// that cannot be used, or the service's own trouble, and never one for another.
func TestEveryErrnoOfAPreparation(t *testing.T) {
	cfg := settings.Default("n1")
	cfg.DataDir, cfg.Storage.Path = "/data", "/shared"
	p := &Programs{env: Env{Settings: &cfg}}
	for errno := syscall.Errno(1); errno <= 133; errno++ {
		want := status.StorageUnusable
		if errno == syscall.ENOSPC || errno == syscall.EDQUOT {
			want = status.DiskFull
		}

		for subject, err := range map[string]error{
			"/data": &fs.PathError{Op: "mkdir", Path: "/data/etc", Err: errno},
			"/shared": fmt.Errorf("make directory: %w",
				&os.LinkError{Op: "rename", Old: "/shared/a", New: "/shared/b", Err: errno}),
			"/data2/x": multierror.Append(nil, &fs.PathError{Op: "open", Path: "/data2/x", Err: errno}),
		} {
			if f := p.unprepared(status.MasterService, err); f.Code != want || f.Subject != subject {
				t.Errorf("%v: %+v, want %s %s", err, f, want, subject)
			}
		}
	}

	for name, want := range map[string]status.Code{
		status.MasterService:   status.MasterDown,
		status.BalancerService: status.BalancerDown,
	} {
		if f := p.unprepared(name, errors.New("a process of before does not end")); f.Code != want {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
