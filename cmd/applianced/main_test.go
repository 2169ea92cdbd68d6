package main

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestAdviceForWhoMayNot(t *testing.T) {
	denied := fmt.Errorf("upgrade: %w", &fs.PathError{Op: "open", Path: "/efi/grub/grubenv", Err: fs.ErrPermission})
	for _, c := range []struct {
		err  error
		uid  int
		want string
	}{
		{denied, 1000, "upgrade: open /efi/grub/grubenv: permission denied; run it as root: sudo applianced ..."},
		{denied, 0, "upgrade: open /efi/grub/grubenv: permission denied"},
		{errors.New("no answer"), 1000, "no answer"},
	} {
		if got := withAdvice(c.err, c.uid); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
