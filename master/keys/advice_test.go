package keys_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"saltern/master/keys"
)

func TestAdvise(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "rename", Path: "x", Err: syscall.ENOTCONN}, "applianced storage status"},
		{fmt.Errorf("moving: %w", &fs.PathError{Op: "rename", Path: "x", Err: syscall.EROFS}),
			"applianced storage status"},
		{fmt.Errorf("moving: %w", syscall.ENOSPC), "make room"},
		{syscall.EACCES, "as root"},
		{keys.ErrUnknown, ""},
		{syscall.ENOENT, ""},
	} {
		got := keys.Advise(c.err)
		if !errors.Is(got, c.err) || !strings.Contains(got.Error(), c.want) ||
			c.want == "" && got.Error() != c.err.Error() {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
