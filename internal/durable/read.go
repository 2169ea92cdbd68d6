package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"syscall"
	"time"
)

// Links says whether a symbolic link may be the last part of a path.
type Links int

// Whether Open follows links. In folders to which other accounts can write, callers must use
// Refuse.
const (
	Refuse Links = syscall.O_NOFOLLOW
	Follow Links = 0
)

// Open opens a regular file for reading. If the path is a pipe or a device, it returns an error
// without waiting.
func Open(path string, links Links) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|int(links), 0)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("it is not a regular file")}
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

// Read returns the content of a regular file of at most limit bytes, and refuses a link.
func Read(path string, limit int64) ([]byte, error) {
	b, _, err := ReadFile(path, limit, Refuse)
	return b, err
}

// ReadFile returns the content of a regular file of at most limit bytes, opened by Open, and the
// FileInfo of the file that was read.
func ReadFile(path string, limit int64, links Links) ([]byte, fs.FileInfo, error) {
	f, st, err := Open(path, links)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()

	var b bytes.Buffer
	if st.Size() <= limit {
		b.Grow(int(st.Size()) + bytes.MinRead)
		_, err = b.ReadFrom(io.LimitReader(f, limit+1)) // the file may have grown since Stat
	}

	if err == nil && max(st.Size(), int64(b.Len())) > limit {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it is larger than %d bytes", limit)}
	}

	if err != nil {
		return nil, nil, err
	}

	return b.Bytes(), st, nil
}

// RetryStale calls f again while its error is ESTALE. A network file system returns ESTALE for a
// file that was replaced between two calls, until its cache of the name expires (FUSE: a second).
// RetryStale waits for up to 2 ms before the second call, and up to twice as long before each
// further call. When that would exceed patience, it returns the error.
func RetryStale(patience time.Duration, f func() error) error {
	for wait := 2 * time.Millisecond; ; wait *= 2 {
		err := f()
		if !errors.Is(err, syscall.ESTALE) || wait > patience {
			return err
		}
		time.Sleep(wait/2 + rand.N(wait/2))
	}
}
