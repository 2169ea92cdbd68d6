package backup

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"filippo.io/age"

	"saltern/internal/room"
	"saltern/supervisor/settings"
)

// extractor reads an archive, and checks it while it reads.
type extractor struct {
	ctx    context.Context
	sum    *Summary
	limits Limits
	seen   map[string]bool // names of the files read so far
	config Config
	watch  *room.Watch // stops the extraction before the disk is full; nil: nothing is written
	digest
	signed bool // the signature was read: no entry may follow
}

// stageArchive reads an archive and writes its files below dir. If dir is empty, it only checks the
// archive.
func (x *extractor) stageArchive(r io.Reader, dir string, identities []age.Identity) error {
	open, err := age.Decrypt(r, identities...)
	if err != nil {
		if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
			return errors.New("the passphrase or key does not fit to this backup")
		}
		return fmt.Errorf("this is not a backup, or it is damaged: %w", err)
	}

	zip, err := gzip.NewReader(bufio.NewReader(open))
	if err != nil {
		return fmt.Errorf("the backup is damaged: %w", err)
	}

	var root *os.Root
	if dir != "" {
		if root, err = os.OpenRoot(dir); err != nil {
			return err
		}
		defer root.Close()
		if x.watch, err = room.Guard(dir, room.Usual()); err != nil {
			return err
		}
	}

	if err := x.unpack(zip, root); err != nil {
		return err
	}

	// An archive is complete only if its last byte could be decrypted and authenticated.
	if _, err := io.Copy(io.Discard, io.LimitReader(open, 1)); err != nil {
		return fmt.Errorf("the backup is damaged at its end: %w", err)
	}

	return nil
}

// unpack reads the tar archive and writes its files below root. root may be nil: unpack then only
// checks the archive.
func (x *extractor) unpack(r io.Reader, root *os.Root) error {
	x.digest = newDigest()

	// The bound includes the archive's headers and padding.
	in := &io.LimitedReader{R: r, N: x.limits.Bytes + int64(x.limits.Entries)*1536}
	for n, t := 0, tar.NewReader(in); ; n++ {
		if x.ctx.Err() != nil {
			return x.ctx.Err()
		}

		h, err := t.Next()
		if errors.Is(err, io.EOF) && in.N > 0 {
			break
		}
		if in.N <= 0 {
			return fmt.Errorf("the backup holds more than %d bytes", x.limits.Bytes)
		}
		if err != nil {
			return fmt.Errorf("the backup is damaged: %w", err)
		}
		if n >= x.limits.Entries {
			return fmt.Errorf("the backup holds more than %d files", x.limits.Entries)
		}

		if err := x.takeEntry(root, h, t, n == 0); err != nil {
			return err
		}
	}

	if x.sum.Manifest.Format == 0 {
		return errors.New("the backup is empty")
	}

	if _, err := io.Copy(io.Discard, in); err != nil {
		return fmt.Errorf("the backup is damaged at its end: %w", err)
	}
	if in.N <= 0 {
		return fmt.Errorf("the backup holds more than %d bytes", x.limits.Bytes)
	}

	return nil
}

func (x *extractor) takeEntry(root *os.Root, h *tar.Header, r io.Reader, first bool) error {
	if x.signed {
		return errors.New("the backup goes on after its signature")
	}
	if h.Name == signatureName && h.Typeflag == tar.TypeReg && !first {
		return x.signature(h, r)
	}

	x.digest.addHeader(h)
	r = io.TeeReader(r, x.digest)
	if first {
		return x.manifest(h, r)
	}

	name := strings.TrimSuffix(h.Name, "/")
	if err := checkName(name); err != nil {
		return fmt.Errorf("an entry of the backup %w", err)
	}
	if x.seen[name] {
		return fmt.Errorf("the backup holds %q twice", name)
	}

	x.seen[name] = true
	if name == "appliance.yaml" && h.Typeflag == tar.TypeReg {
		if h.Size > maxConfig {
			return errors.New("the appliance.yaml of the backup is too large")
		}
		var err error
		x.config, err = io.ReadAll(io.LimitReader(r, maxConfig))
		return err
	}

	if !isKnownName(name, x.sum.Manifest.Jobs) {
		return fmt.Errorf("the backup holds %q, which does not belong into one", name)
	}

	mode := fs.FileMode(h.Mode) & 0o755
	switch h.Typeflag {
	case tar.TypeDir:
		if root == nil {
			return nil
		}
		return x.folder(root, name, mode|0o700)
	case tar.TypeReg:
		return x.writeFile(root, name, mode|0o400, h.Size, r)
	}

	return fmt.Errorf("the backup holds %q, which is neither a file nor a directory", name)
}

func (x *extractor) signature(h *tar.Header, r io.Reader) error {
	if h.Size > maxSignature {
		return errors.New("the signature of the backup is too large")
	}
	text, err := io.ReadAll(io.LimitReader(r, maxSignature))
	if err != nil {
		return err
	}
	x.signed = true
	x.sum.Signer, err = verify(text, x.digest.Sum(nil))
	return err
}

func (x *extractor) manifest(h *tar.Header, r io.Reader) error {
	if h.Name != manifestName || h.Typeflag != tar.TypeReg || h.Size > maxManifest {
		return errors.New("this is not a backup of a node: it does not begin with a manifest")
	}

	text, err := io.ReadAll(io.LimitReader(r, maxManifest))
	if err != nil {
		return err
	}

	m := &x.sum.Manifest
	if err := json.Unmarshal(text, m); err != nil {
		return fmt.Errorf("the manifest of the backup cannot be read: %w", err)
	}
	if m.Format != format && m.Format != 1 {
		return fmt.Errorf("the backup has format %d, this program knows %d; restore it with the version that made it",
			m.Format, format)
	}

	return nil
}

func (x *extractor) writeFile(root *os.Root, name string, mode fs.FileMode, size int64, r io.Reader) error {
	if size < 0 || size > maxFile || x.sum.Bytes+size > x.limits.Bytes {
		return fmt.Errorf("%q makes the backup larger than %d bytes, which is the limit", name, x.limits.Bytes)
	}

	x.sum.Files++
	x.sum.Bytes += size
	if root == nil {
		_, err := io.Copy(io.Discard, r)
		return err
	}

	if err := x.folder(root, path.Dir(name), 0o755); err != nil {
		return err
	}

	if err := x.watch.File(); err != nil {
		return err
	}

	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return err
	}

	_, err = io.Copy(x.watch.Writer(f), r)
	if err == nil {
		err = f.Chmod(mode)
	}

	return errors.Join(err, f.Close())
}

// folder creates a folder and those above it, if the disk has room.
func (x *extractor) folder(root *os.Root, name string, mode fs.FileMode) error {
	for range strings.Count(name, "/") + 1 { // an upper bound: some of the folders may exist
		if err := x.watch.File(); err != nil {
			return err
		}
	}
	return root.MkdirAll(name, mode)
}

// isKnownName reports whether a name is in one of the trees of a backup, or is a folder above one.
func isKnownName(name string, jobs bool) bool {
	for _, t := range treesOf(&settings.Settings{}, jobs) {
		if rel, ok := strings.CutPrefix(name, t.name+"/"); ok && (t.skip == nil || !t.skip(rel)) {
			return true
		}
	}
	return false
}
