package mastersvc

import (
	"io/fs"
	"syscall"
	"testing"

	"saltern/supervisor/layout"
	"saltern/supervisor/status"
)

// TestEveryErrnoOfAKey: a key that cannot be read is a disk that is full, files that cannot be
// used, or the key's own trouble, and never one for another.
func TestEveryErrnoOfAKey(t *testing.T) {
	for errno := syscall.Errno(1); errno <= 133; errno++ {
		want := status.KeyUnreadable
		err := &layout.KeyFault{
			Path:   "/data/pki/master.pem",
			Reason: errno.Error(),
			Err:    &fs.PathError{Op: "open", Path: "/data/pki/master.pem", Err: errno},
		}

		switch errno {
		case syscall.ENOSPC, syscall.EDQUOT:
			want = status.DiskFull
		case syscall.EIO, syscall.ENXIO, syscall.EUCLEAN, syscall.EROFS, syscall.ESTALE, syscall.ENOTCONN, syscall.ESHUTDOWN, syscall.EREMOTEIO:
			want = status.StorageUnusable
		}

		if b := keyFindings(err); len(b) != 1 || b[0].Code != want {
			t.Errorf("%v: %+v, want %s", err, b, want)
		}
	}
}
