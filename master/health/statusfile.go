package health

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"saltern/control"
	"saltern/durable"
)

// WriteFile replaces a small file that others read, without waiting for
// the disk. On a full disk the old content is written over where it lies,
// which takes no new room: then above all somebody must be told. A reader may
// meet half of it then, and reads again.
func writeFile(path string, data []byte) error {
	err := durable.Swap(path, data, 0o640)
	if err == nil {
		return nil
	}
	if over := overwrite(path, data); over != nil {
		return errors.Join(err, over)
	}
	return nil
}

// overwrite puts data into a file and fills the rest of it with spaces, which
// mean nothing in JSON.
func overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if rest := info.Size() - int64(len(data)); rest > 0 {
		data = append(bytes.Clone(data), bytes.Repeat([]byte{' '}, int(rest))...)
	}
	_, err = f.WriteAt(data, 0)
	return err
}

// jobCacheQuiet is how long after the last failure writing is tried without a
// return.
const jobCacheQuiet = 5 * time.Second

// RetryJobCache ends the problem of a job cache that nobody writes to any more
// when the disk of dir takes data again.
func (p *Problems) RetryJobCache(dir string) {
	if !p.quiet(control.JobCacheFault, jobCacheQuiet) {
		return
	}
	p.Report(control.JobCacheFault, tryWriting(dir))
}

// tryWriting writes as much as a job needs, down to the disk.
func tryWriting(dir string) error {
	f, err := os.CreateTemp(dir, ".try-*")
	if err != nil {
		return fmt.Errorf("try to write to %s: %w", dir, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, 256<<10))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("try to write to %s: %w", filepath.Clean(dir), err)
	}
	return nil
}
