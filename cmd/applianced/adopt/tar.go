package adopt

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"saltern/internal/room"
	"saltern/supervisor/backup"
)

// Limits bounds the unpacking of an archive. A zero value in it stands for the default.
type Limits struct {
	Bytes   int64 // bytes of all files
	Entries int
}

// passedOver reports whether a name is below a folder that is not imported: a folder of jobs,
// caches or logs, which can be large, or a file system that is not on a disk.
func passedOver(name string) bool {
	for _, dir := range []string{"var/cache/salt", "var/log", "proc", "sys", "dev", "run"} {
		if rest, ok := strings.CutPrefix(name, dir); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// Unpack unpacks a tar archive, compressed with gzip or not, below root, which must be empty. It
// creates files, folders and links, but no devices. Links may lead anywhere, because only a [Tree]
// follows them. Unpack returns an error for a name that leads outside of root, a repeated file,
// more data than the limits allow, or a disk that is nearly full. The notes name the omitted files.
// After an error the caller removes the unpacked files.
func Unpack(ctx context.Context, r io.Reader, root *os.Root, l Limits) ([]Note, error) {
	if l.Bytes <= 0 {
		l.Bytes = maxBytes
	}

	if l.Entries <= 0 {
		l.Entries = 2 * maxEntries
	}

	b := bufio.NewReader(r)
	if head, _ := b.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("read the archive: %w", err)
		}
		r = z
	} else {
		r = b
	}

	watch, err := room.Guard(root.Name(), room.Usual())
	if err != nil {
		return nil, fmt.Errorf("unpack the archive: %w", err)
	}

	u := &unpacker{
		root:      root,
		bytesLeft: l.Bytes,
		folders:   map[string]bool{},
		entries:   l.Entries,
		watch:     watch,
	}

	end := &ending{r: r}
	in := &io.LimitedReader{R: end, N: l.Bytes + int64(l.Entries)*1536} // with room for headers and padding
	for n, t := 0, tar.NewReader(in); ; n++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		h, err := t.Next()
		switch {
		case in.N <= 0:
			return nil, fmt.Errorf("read the archive: it holds more than %d bytes", l.Bytes)
		case errors.Is(err, io.EOF) && !end.reached:
			if _, err := io.Copy(io.Discard, in); err != nil {
				return nil, fmt.Errorf("read the archive: it is damaged at its end: %w", err)
			}
			return u.notes, nil
		case err != nil:
			return nil, fmt.Errorf("read the archive: it is no tar archive, plain or with gzip, or is cut: %w", err)
		case n >= l.Entries:
			return nil, fmt.Errorf("read the archive: it holds more than %d files", l.Entries)
		}

		err = u.unpackEntry(h, t)
		switch {
		case errors.Is(err, room.ErrFull):
			return nil, fmt.Errorf("unpack the archive: %w; make room, or pack less of the other master", err)
		case errors.Is(err, io.ErrUnexpectedEOF):
			err = errors.New("it is cut")
		}

		if err != nil {
			return nil, fmt.Errorf("read the archive: %w", err)
		}
	}
}

// ending detects whether an archive ends with its end mark, or was cut between two files. Package
// tar does not detect that.
type ending struct {
	r       io.Reader
	reached bool // the input has ended without the end mark
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.r.Read(b)
	e.reached = e.reached || n == 0 && errors.Is(err, io.EOF)
	return n, err
}

type unpacker struct {
	root      *os.Root
	bytesLeft int64           // bytes that files may still take
	folders   map[string]bool // folders that exist
	entries   int             // how many more folders may be created
	watch     *room.Watch
	notes     []Note
}

func (u *unpacker) skipEntry(name, why string) {
	if len(u.notes) < maxListed {
		u.notes = append(u.notes, Note{File: "/" + name, Text: "left out: " + why})
	}
}

// plainName returns a name of the archive as a relative path, or an error for an unsafe name.
func plainName(name string) (string, error) {
	name = strings.TrimLeft(strings.TrimPrefix(name, "./"), "/")
	name = strings.TrimSuffix(name, "/")
	if name != "" && name != "." && !backup.Plain(name) {
		return "", fmt.Errorf("it has a name that is not plain: %q", name)
	}
	return name, nil
}

func (u *unpacker) unpackEntry(h *tar.Header, r io.Reader) error {
	name, err := plainName(h.Name)
	if err != nil || name == "" || name == "." || passedOver(name) {
		return err
	}

	if err := backup.CheckName(name); err != nil {
		u.skipEntry(path.Dir(name), "something in it "+err.Error())
		return nil
	}
	if h.Typeflag == tar.TypeDir {
		return u.folder(name)
	}

	if err := u.folder(path.Dir(name)); err != nil {
		return err
	}

	if err := u.watch.File(); err != nil {
		return err
	}

	switch h.Typeflag {
	case tar.TypeReg:
		err = u.unpackFile(name, h, r)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > 4096 || strings.Contains(h.Linkname, "\x00") {
			return fmt.Errorf("the link %q leads nowhere", name)
		}
		err = u.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		to, perr := plainName(h.Linkname)
		if perr != nil {
			return perr
		}

		if err = u.root.Link(to, name); errors.Is(err, fs.ErrNotExist) {
			u.skipEntry(name, "it is another name of a file that is not in the archive")
			err = nil
		}
	default:
		u.skipEntry(name, "it is neither a file nor a folder nor a link")
	}

	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("it holds %q twice", name)
	}

	return err
}

// folder creates a folder and the folders above. Each created folder counts towards the limits,
// because one name may need many.
func (u *unpacker) folder(name string) error {
	if name == "." || u.folders[name] {
		return nil
	}

	if err := u.folder(path.Dir(name)); err != nil {
		return err
	}
	if len(u.folders) >= u.entries {
		return fmt.Errorf("it holds more than %d folders", u.entries)
	}

	if err := u.watch.File(); err != nil {
		return err
	}

	err := u.root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) { // accept a link to a folder, too
		var fi fs.FileInfo
		if fi, err = u.root.Stat(name); err == nil && !fi.IsDir() {
			err = fmt.Errorf("%q is a file and a folder", name)
		}
	}

	if err == nil {
		u.folders[name] = true
	}

	return err
}

func (u *unpacker) unpackFile(name string, h *tar.Header, r io.Reader) error {
	if h.Size < 0 || h.Size > maxFile || h.Size > u.bytesLeft {
		return fmt.Errorf("%q is too large: %d bytes", name, h.Size)
	}
	u.bytesLeft -= h.Size
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(u.watch.Writer(f), r)
	if err == nil {
		err = f.Chmod(fs.FileMode(h.Mode)&0o755 | 0o600)
	}
	return errors.Join(err, f.Close())
}
