package health

import (
	"bytes"
	"errors"
	"os"

	"saltern/internal/durable"
)

// writeFile replaces a small file that other programs read, and does not sync it. If that fails, as
// on a full disk, writeFile overwrites the old content in place, which needs no new space: the
// status is most important when the disk is full. A reader may see a partly written file, and must
// read it again.
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

// overwrite writes data over a file and pads the rest with spaces, which JSON ignores.
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
