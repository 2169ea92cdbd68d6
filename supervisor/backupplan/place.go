package backupplan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"saltern/internal/durable"
	"saltern/internal/room"
	"saltern/supervisor/internal/imds"
	"saltern/supervisor/settings"
)

// place is a directory or a bucket for backups, which may hold files of other programs. If a file
// is missing, the error of a method is fs.ErrNotExist.
type place interface {
	// String returns the name of the place for people. pathOf returns the full path of a file in
	// the place.
	String() string
	pathOf(name string) string
	// checkPresent returns nil if the place exists. Its error says what to do.
	checkPresent(ctx context.Context) error
	// renewalCommand returns the command by which an administrator confirms a new place. name is
	// the name of the catalogue's file.
	renewalCommand(name string) string
	readFile(ctx context.Context, name string, maxBytes int64) ([]byte, error)
	replace(ctx context.Context, name string, b []byte) error
	hasFile(ctx context.Context, name string) (bool, error)
	remove(ctx context.Context, name string) error
	// create begins a file that gets its name when it is published. If the process dies before
	// that, removeUnfinished removes the remains. The temporary name of the file, if it has one,
	// begins with partial.
	create(ctx context.Context, name, partial string) (upload, error)
	// removeUnfinished removes the unfinished files whose names begin with prefix or partial.
	removeUnfinished(ctx context.Context, prefix, partial string)
}

// upload is a file that is being written.
type upload interface {
	io.Writer
	finish() error  // returns when the whole file is durable
	publish() error // renames the file to its final name
	abandon()       // deletes the file unless it was published
}

// newPlace returns the place that the settings name.
func newPlace(b settings.Backup) (place, error) {
	if bucket, prefix, ok := b.Bucket(); ok {
		return newBucket(b, bucket, prefix, imds.Address)
	}
	return directory(b.To), nil
}

// directory is a directory of this node, often on a network file system.
type directory string

func (d directory) String() string                    { return string(d) }
func (d directory) pathOf(name string) string         { return filepath.Join(string(d), name) }
func (d directory) renewalCommand(name string) string { return "touch " + d.pathOf(name) }

func (d directory) checkPresent(context.Context) error {
	switch fi, err := os.Stat(string(d)); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no directory %s: make it, or mount it", d)
	case err != nil:
		return fmt.Errorf("look for the backups: %w", err)
	case !fi.IsDir():
		return fmt.Errorf("%s is not a directory", d)
	}
	return nil
}

func (d directory) readFile(_ context.Context, name string, maxBytes int64) ([]byte, error) {
	return durable.Read(d.pathOf(name), maxBytes)
}

func (d directory) replace(_ context.Context, name string, b []byte) error {
	return durable.Replace(d.pathOf(name), b, 0o600)
}

func (d directory) hasFile(_ context.Context, name string) (bool, error) {
	_, err := os.Lstat(d.pathOf(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (d directory) remove(_ context.Context, name string) error { return os.Remove(d.pathOf(name)) }

func (d directory) create(_ context.Context, name, partial string) (upload, error) {
	watch, err := room.Guard(string(d), room.Usual())
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(string(d), partial+"*") // CreateTemp sets mode 0600
	if err != nil {
		return nil, err
	}
	return &fileUpload{file: f, out: watch.Writer(f), dir: d, name: name}, nil
}

func (d directory) removeUnfinished(_ context.Context, _, partial string) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return // the write that follows reports the fault
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), partial) && e.Type().IsRegular() {
			_ = os.Remove(d.pathOf(e.Name())) // if this fails, the next backup tries again
		}
	}
}

type fileUpload struct {
	file *os.File
	out  io.Writer // writes to the file while the disk has room
	dir  directory
	name string
}

// Write implements io.Writer.
func (u *fileUpload) Write(b []byte) (int, error) { return u.out.Write(b) }

func (u *fileUpload) finish() error { return errors.Join(u.file.Sync(), u.file.Close()) }

func (u *fileUpload) publish() error {
	if err := os.Rename(u.file.Name(), u.dir.pathOf(u.name)); err != nil {
		return err
	}
	return durable.SyncDir(string(u.dir))
}

func (u *fileUpload) abandon() {
	_ = u.file.Close()
	// a published file has another name by now; if this fails, the next backup removes the file
	_ = os.Remove(u.file.Name())
}
