package support

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"saltern/internal/durable"
)

// readTail returns the end of a regular file, at most limit bytes, starting at the beginning of a
// line. It never blocks on a pipe or a device, and follows no link.
func readTail(path string, limit int64) ([]byte, error) {
	f, fi, err := durable.Open(path, durable.Refuse)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	cut := fi.Size() > limit
	if cut {
		if _, err := f.Seek(-limit, io.SeekEnd); err != nil {
			return nil, err
		}
	}

	text, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, err
	}

	if cut {
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
		text = append([]byte("(the beginning is left out)\n"), text...)
	}

	return text, nil
}

// walkFiles does what filepath.WalkDir does, but does not touch the directory that hangs names, not
// even by stat. hangs may be empty.
func walkFiles(dir, hangs string, visit fs.WalkDirFunc) error {
	if hangs != "" && within(dir, hangs) {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if hangs != "" && path == hangs {
			return fs.SkipDir // the name came from the directory above, so hangs was not touched
		}
		return visit(path, e, err)
	})
}

// listFiles returns a list of the files below dir with mode, owner, size and time, without their
// content. It omits the directory hangs.
func listFiles(dir, hangs string) []byte {
	var b strings.Builder
	n := 0
	err := walkFiles(dir, hangs, func(path string, e fs.DirEntry, err error) error {
		n++
		if n > maxListed {
			return errors.New("there are more")
		}
		if err != nil {
			fmt.Fprintf(&b, "%q: %v\n", path, err)
			return nil
		}

		fi, err := e.Info()
		if err != nil {
			return nil // removed meanwhile
		}

		uid, gid := uint32(0), uint32(0)
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			uid, gid = st.Uid, st.Gid
		}

		fmt.Fprintf(&b, "%s %5d %5d %10d %s %q\n", fi.Mode(), uid, gid, fi.Size(),
			fi.ModTime().UTC().Format(time.RFC3339), path)
		return nil
	})
	if err != nil {
		fmt.Fprintf(&b, "the list ends here: %v\n", err)
	}

	return []byte(b.String())
}
