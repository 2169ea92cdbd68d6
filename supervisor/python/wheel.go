package python

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/textproto"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"saltern/internal/room"
)

// wheel is an open wheel (PEP 427) that was checked: each of its files has a hash and a path in a
// layer.
type wheel struct {
	Package
	tags           []string // compatibility tags (python-abi-platform), such as py3-none-any
	requires       []string // its Requires-Dist headers
	requiresPython string
	tops           map[string]bool // top-level names that the wheel provides; true: not a namespace package
	files          []wheelFile     // files that go into a layer
	skipped        []string        // files that no layer gets: programs, headers, data

	f   *os.File
	zip *zip.Reader
}

type wheelFile struct {
	from *zip.File
	to   string // path in the layer
	sum  []byte
}

// openWheel opens a wheel in a folder that other accounts may write to, and reads its metadata. The
// caller closes the wheel.
func openWheel(root *os.Root, name string) (w *wheel, err error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
			err = fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
	}()

	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxWheel {
		return nil, fmt.Errorf("it is no regular file of at most %d MiB", maxWheel>>20)
	}

	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, maxWheel)); err != nil {
		return nil, err
	}

	w = &wheel{f: f, tops: map[string]bool{}}
	w.File = filepath.Base(name)
	w.Size = fi.Size()
	w.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if err := w.parseName(); err != nil {
		return nil, err
	}

	if w.zip, err = zip.NewReader(f, fi.Size()); err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, errors.New("it is no wheel: not a zip file")
	}

	return w, w.readArchive()
}

func (w *wheel) close() { w.f.Close() }

// parseName sets the fields that are in the file's name: name-version(-build)?-python-abi-platform.
func (w *wheel) parseName() error {
	parts := strings.Split(strings.TrimSuffix(w.File, ".whl"), "-")
	if !plainFile.MatchString(w.File) || len(parts) != 5 && len(parts) != 6 {
		return errors.New("its name is not that of a wheel: name-version-python-abi-platform.whl")
	}

	w.Name, w.Version = Canonical(parts[0]), parts[1]
	n := len(parts)
	for _, py := range strings.Split(parts[n-3], ".") {
		for _, abi := range strings.Split(parts[n-2], ".") {
			for _, platform := range strings.Split(parts[n-1], ".") {
				w.tags = append(w.tags, py+"-"+abi+"-"+platform)
			}
		}
	}

	return checkList([]Package{w.Package})
}

// readArchive checks every entry of the archive.
func (w *wheel) readArchive() error {
	if len(w.zip.File) > maxFiles {
		return fmt.Errorf("it has more than %d files", maxFiles)
	}

	entries, infos := map[string]*zip.File{}, []string{}
	for _, e := range w.zip.File {
		if strings.HasSuffix(e.Name, "/") && e.UncompressedSize64 == 0 {
			continue
		}

		if err := plainEntry(e); err != nil {
			return err
		}
		if entries[e.Name] != nil {
			return fmt.Errorf("%s is in it twice", e.Name)
		}

		entries[e.Name] = e
		if dir, name, _ := strings.Cut(e.Name, "/"); name == "RECORD" && strings.HasSuffix(dir, ".dist-info") {
			infos = append(infos, dir)
		}
	}

	if len(infos) != 1 {
		return errors.New("it is no wheel: it has not one list of files (RECORD)")
	}

	if name, version, ok := strings.Cut(strings.TrimSuffix(infos[0], ".dist-info"), "-"); !ok ||
		Canonical(name) != w.Name || version != w.Version {
		return fmt.Errorf("its name and its content (%s) are not of the same package", infos[0])
	}

	if err := w.metadata(entries, infos[0]); err != nil {
		return err
	}

	sums, err := w.record(entries[infos[0]+"/RECORD"])
	if err != nil {
		return err
	}

	return w.placeFiles(entries, infos[0], sums)
}

// plainEntry refuses an entry that leads out of the folder, or is not a regular file.
func plainEntry(e *zip.File) error {
	name := e.Name
	switch {
	case !utf8.ValidString(name) || strings.ContainsAny(name, "\\\x00\n\r") || len(name) > maxPath ||
		!filepath.IsLocal(name) || path.Clean(name) != name:
		return fmt.Errorf("%.100q is no path inside of a package", name)
	case !e.Mode().IsRegular():
		return fmt.Errorf("%.100q is no regular file", name)
	case e.UncompressedSize64 > maxUnpacked:
		return fmt.Errorf("%.100q has more than %d MiB", name, maxUnpacked>>20)
	}
	return nil
}

// readSmall reads an entry of at most maxBytes bytes.
func readSmall(e *zip.File, maxBytes int) ([]byte, error) {
	if e == nil {
		return nil, errors.New("it is no wheel: METADATA, WHEEL or RECORD is missing")
	}
	r, err := e.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, int64(maxBytes)+1))
	if err == nil && len(b) > maxBytes {
		err = fmt.Errorf("%s has more than %d KiB", e.Name, maxBytes>>10)
	}
	return b, err
}

// readHeaders parses the headers of METADATA or WHEEL.
func readHeaders(e *zip.File) (textproto.MIMEHeader, error) {
	b, err := readSmall(e, maxText)
	if err != nil {
		return nil, err
	}
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(b))).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", e.Name, err)
	}
	return h, nil
}

func (w *wheel) metadata(entries map[string]*zip.File, info string) error {
	m, err := readHeaders(entries[info+"/METADATA"])
	if err != nil {
		return err
	}
	if Canonical(m.Get("Name")) != w.Name || m.Get("Version") == "" {
		return fmt.Errorf("it calls itself %.100q", m.Get("Name"))
	}

	w.requires, w.requiresPython = m.Values("Requires-Dist"), m.Get("Requires-Python")
	if len(w.requires) > maxRequires {
		return fmt.Errorf("it needs more than %d packages", maxRequires)
	}

	about, err := readHeaders(entries[info+"/WHEEL"])
	if err != nil {
		return err
	}

	if v := about.Get("Wheel-Version"); v != "1" && !strings.HasPrefix(v, "1.") {
		return fmt.Errorf("it is a wheel of version %.20q, and 1 is understood", v)
	}

	return nil
}

// record returns the hashes of the files, from RECORD.
func (w *wheel) record(e *zip.File) (map[string][]byte, error) {
	b, err := readSmall(e, maxRecord)
	if err != nil {
		return nil, err
	}

	r := csv.NewReader(bytes.NewReader(b))
	r.FieldsPerRecord = 3
	sums := map[string][]byte{}
	for {
		line, err := r.Read()
		if errors.Is(err, io.EOF) {
			return sums, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read RECORD: %w", err)
		}

		if text, ok := strings.CutPrefix(line[1], "sha256="); ok {
			if sum, err := base64.RawURLEncoding.DecodeString(text); err == nil && len(sum) == sha256.Size {
				sums[line[0]] = sum
			}
		}
	}
}

// placeFiles decides the path of each file in the layer, and which names can be imported.
func (w *wheel) placeFiles(entries map[string]*zip.File, info string, sums map[string][]byte) error {
	data := strings.TrimSuffix(info, ".dist-info") + ".data/"
	taken := map[string]bool{}
	for _, e := range w.zip.File {
		if entries[e.Name] != e {
			continue
		}

		to := e.Name
		if rest, in := strings.CutPrefix(e.Name, data); in {
			kind, below, _ := strings.Cut(rest, "/")
			if kind != "purelib" && kind != "platlib" || below == "" {
				w.skipped = append(w.skipped, e.Name)
				continue
			}
			to = below
		}

		f := wheelFile{from: e, to: to, sum: sums[e.Name]}
		switch base := path.Base(to); {
		case to == info+"/RECORD" || strings.HasPrefix(to, info+"/RECORD."):
			continue
		case f.sum == nil:
			return fmt.Errorf("its RECORD has no SHA-256 of %.100q", e.Name)
		case !strings.Contains(to, "/") && (strings.HasSuffix(base, ".pth") || strings.HasSuffix(base, ".egg-link")):
			return fmt.Errorf("it has %s, with which every Python would run code of it as it starts; "+
				"there is no place for such packages",
				base)
		case taken[to]:
			return fmt.Errorf("%.100q is in it twice", to)
		}

		taken[to] = true
		w.files = append(w.files, f)
		top, rest, below := strings.Cut(to, "/")
		switch {
		case strings.HasSuffix(top, ".dist-info"):
			if top != info {
				return fmt.Errorf("it says something of another package: %.100q", top)
			}
		case !below:
			if name, ext, _ := strings.Cut(top, "."); ext == "py" || ext == "pyc" || strings.HasSuffix(ext, "so") {
				w.tops[name] = true
			}
		default:
			first, _, deeper := strings.Cut(rest, "/")
			w.tops[top] = w.tops[top] || !deeper && strings.HasPrefix(first, "__init__.")
		}
	}

	return nil
}

// fitsTags reports whether the wheel suits a Python with one of these tags.
func (w *wheel) fitsTags(tags map[string]bool) bool {
	return slices.ContainsFunc(w.tags, func(t string) bool { return tags[t] })
}

// budget is the number of bytes and files that may still be unpacked into a layer.
type budget struct {
	bytes int64
	files int
	watch *room.Watch
}

// unpack writes the files into a folder and checks each against its hash.
func (w *wheel) unpack(to *os.Root, left *budget) error {
	for _, f := range w.files {
		left.files--
		if left.files < 0 {
			return fmt.Errorf("%s: the packages have more than %d files", w.File, maxFiles)
		}

		for range strings.Count(f.to, "/") + 1 { // count the file, and all folders above it, which may be new
			if err := left.watch.File(); err != nil {
				return fmt.Errorf("unpack %s: %w", w.File, err)
			}
		}

		if err := to.MkdirAll(path.Dir(f.to), 0o755); err != nil {
			return fmt.Errorf("unpack %s: %w", w.File, err)
		}

		if err := f.unpack(to, left); err != nil {
			if errors.Is(err, fs.ErrExist) {
				err = fmt.Errorf("%s is in another package as well", f.to)
			}
			return fmt.Errorf("unpack %s: %w", w.File, err)
		}
	}

	return nil
}

func (f wheelFile) unpack(to *os.Root, left *budget) error {
	r, err := f.from.Open()
	if err != nil {
		return err
	}
	defer r.Close()

	out, err := to.OpenFile(f.to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}

	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(left.watch.Writer(out), sum), io.LimitReader(r, left.bytes+1))
	if err == nil {
		err = out.Chmod(0o644) // sets the mode regardless of the umask
	}

	err = errors.Join(err, out.Close())
	switch left.bytes -= n; {
	case err != nil:
		return err
	case left.bytes < 0:
		return fmt.Errorf("the packages have more than %d MiB unpacked", maxUnpacked>>20)
	case !bytes.Equal(sum.Sum(nil), f.sum):
		return fmt.Errorf("%.100q is not what RECORD says", f.to)
	}

	return nil
}
