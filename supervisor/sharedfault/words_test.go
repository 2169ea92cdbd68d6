package sharedfault

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

// TestWords: whatever the shared storage says, people read the cause with its code and
// the next step, and no name of a temporary file or error number (M5).
func TestWords(t *testing.T) {
	const dir = "/srv/cluster"
	s := settings.Default("n1")
	s.Storage.Kind, s.Storage.Path = settings.VolumeStorage, dir
	tmp := filepath.Join(dir, "nodes/.nodes.json.after-tmp-761700366")
	at := func(path string, errno error) error {
		return fmt.Errorf("change %s/nodes/nodes.json: %w", dir, &fs.PathError{Op: "open", Path: path, Err: errno})
	}
	for name, c := range map[string]struct {
		err  error
		want string // "": another cause
	}{
		"seen with two machines": {at(tmp, unix.ENOENT), "SCA-411"},
		"late":                   {fmt.Errorf("drain: %w (%s)", nodes.ErrShared, dir), "SCA-412"},
		"client died":            {at(dir, unix.ENOTCONN), "SCA-412"},
		"aborted":                {at(filepath.Join(dir, "srv/salt/x"), unix.ECONNABORTED), "SCA-412"},
		"no quorum":              {at(tmp, unix.EROFS), "SCA-414"},
		"full":                   {at(tmp, unix.ENOSPC), "SCA-416"},
		"link": {&os.LinkError{Op: "link", Old: tmp, New: dir + "/nodes/x", Err: unix.EIO},
			"SCA-412"},
		"file of a root": {fmt.Errorf("lock options in %s/etc: %w", dir, &fs.PathError{Op: "openat", Path: ".lock", Err: unix.ESTALE}),
			"SCA-412"},
		"a file that one named":  {at(filepath.Join(dir, "etc/none.conf"), unix.ENOENT), ""},
		"permission":             {at(tmp, unix.EACCES), ""},
		"another file system":    {&fs.PathError{Op: "open", Path: "/var/lib/x", Err: unix.EIO}, ""},
		"name that begins equal": {&fs.PathError{Op: "open", Path: dir + "-x/y", Err: unix.EIO}, ""},
		"of the request":         {errors.New("node n9 is not known"), ""},
		"nothing":                {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, is := Words(c.err, &s)
			if is != (c.want != "") || !strings.Contains(got, c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}

			for _, internal := range []string{dir, ".after", "tmp", "no such file", "input/output",
				"transport endpoint", "errno"} {
				if strings.Contains(got, internal) {
					t.Errorf("%q has %q", got, internal)
				}
			}
		})
	}

	every := []error{}
	for n := syscall.Errno(1); n < 134; n++ {
		every = append(every, n)
	}

	for _, errno := range every {
		if got, is := Words(at(tmp, errno), &s); is && !strings.Contains(got, "SCA-") {
			t.Errorf("%v: %q", errno, got)
		}
	}

	if got, is := Words(at(dir, unix.ENOENT), &s); !is || !strings.Contains(got, "SCA-411") {
		t.Errorf("nothing is mounted there: %q", got)
	}

	s.Storage.Kind = settings.DirectoryStorage
	if got, is := Words(at(tmp, unix.ESTALE), &s); !is || !strings.Contains(got, "SCA-401") ||
		strings.Contains(got, "volume") {
		t.Errorf("a shared directory: %q", got)
	}

	s.Storage.Kind = settings.LocalStorage
	if got, is := Words(at(tmp, unix.ESTALE), &s); is {
		t.Errorf("nothing is shared: %q", got)
	}
}
