// Package bundle reads and writes a new version of the system as one file: a tar archive of
//
//	manifest.json   names, sizes and SHA-256 of the parts; version, kernel flavour
//	manifest.sig    ed25519 signature of manifest.json, in base64
//	vmlinuz, initrd, root.squashfs
//
// in this order. So a reader can verify each part while it reads, and needs no second copy.
package bundle

import (
	"archive/tar"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds in bytes of the parts that are read before the signature is verified.
const (
	maxManifest  = 64 << 10
	maxSignature = 1 << 10
	maxPart      = 4 << 30
)

// Parts are the files of a bundle in their order.
var Parts = []string{"vmlinuz", "initrd", "root.squashfs"}

// schema is the version of the manifest's format.
const schema = 1

// errSignature means that no trusted key has signed the manifest.
var errSignature = errors.New("bundle: the signature is not of a key that this node trusts")

// Manifest describes the contents of a bundle.
type Manifest struct {
	Schema  int       `json:"schema"`
	Name    string    `json:"name"` // saltern
	Version string    `json:"version"`
	Flavour string    `json:"flavour"` // kernel flavour: cloud or generic
	Created time.Time `json:"created"` // a later time means a newer version
	// Next is the time by which the signer promises the next version, or zero without a promise.
	// After that time a node suspects that a mirror withholds newer versions.
	Next  time.Time `json:"next,omitzero"`
	Parts []Part    `json:"parts"`
}

// Part is one file of a bundle.
type Part struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hexadecimal
}

var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+~_-]{0,63}$`)

// Check returns an error if the manifest is invalid.
func (m *Manifest) Check() error {
	if m.Schema != schema || m.Name != "saltern" {
		return fmt.Errorf("bundle: schema %d of %q is not known here; a newer version of this system may know it",
			m.Schema, m.Name)
	}
	if !word.MatchString(m.Version) || !word.MatchString(m.Flavour) || m.Created.IsZero() {
		return errors.New("bundle: the manifest lacks version, flavour or time")
	}
	// A promise may reach at most a year ahead.
	if !m.Next.IsZero() && (m.Next.Before(m.Created) || m.Next.Sub(m.Created) > 366*24*time.Hour) {
		return errors.New("bundle: the manifest promises the next version before this one, or in more than a year")
	}

	var names []string
	for _, p := range m.Parts {
		names = append(names, p.Name)
		if b, err := hex.DecodeString(p.SHA256); err != nil || len(b) != sha256.Size || p.Size <= 0 ||
			p.Size > maxPart {
			return fmt.Errorf("bundle: part %q of %d bytes: size or digest is wrong", p.Name, p.Size)
		}
	}

	if !slices.Equal(names, Parts) {
		return fmt.Errorf("bundle: parts %q, want %q", names, Parts)
	}

	return nil
}

// Create writes a bundle. files are the paths of the Parts, in their order.
func Create(w io.Writer, m Manifest, files []string, key ed25519.PrivateKey) error {
	m.Schema = schema
	m.Name = "saltern"
	m.Parts = nil
	if len(files) != len(Parts) {
		return fmt.Errorf("bundle: %d files, want %d", len(files), len(Parts))
	}

	for i, path := range files {
		p, err := measure(path)
		if err != nil {
			return err
		}
		p.Name = Parts[i]
		m.Parts = append(m.Parts, p)
	}

	if err := m.Check(); err != nil {
		return err
	}

	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}

	sig := base64.StdEncoding.EncodeToString(ed25519.Sign(key, text)) + "\n"
	t := tar.NewWriter(w)
	put := func(name string, size int64, r io.Reader) error {
		h := &tar.Header{
			Name:    name,
			Size:    size,
			Mode:    0o644,
			ModTime: m.Created,
			Format:  tar.FormatUSTAR,
		}

		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("bundle: %w", err)
		}

		if _, err := io.Copy(t, r); err != nil {
			return fmt.Errorf("bundle: %s: %w", name, err)
		}

		return nil
	}

	if err := errors.Join(put("manifest.json", int64(len(text)), strings.NewReader(string(text))),
		put("manifest.sig", int64(len(sig)), strings.NewReader(sig))); err != nil {
		return err
	}

	for i, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("bundle: %w", err)
		}

		err = put(Parts[i], m.Parts[i].Size, f)
		f.Close()
		if err != nil {
			return err
		}
	}

	return t.Close()
}

func measure(path string) (Part, error) {
	f, err := os.Open(path)
	if err != nil {
		return Part{}, fmt.Errorf("bundle: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return Part{}, fmt.Errorf("bundle: %w", err)
	}
	return Part{Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

// Reader reads the parts of a bundle whose manifest is verified.
type Reader struct {
	Manifest Manifest
	tar      *tar.Reader
	next     int
}

// Open reads the manifest and its signature. It uses nothing in the manifest before one of the keys
// has verified the signature.
func Open(r io.Reader, keys []ed25519.PublicKey) (*Reader, error) {
	if len(keys) == 0 {
		return nil, errors.New("bundle: this node trusts no key; put one into /etc/saltern/upgrade-keys/NAME.pem")
	}

	t := tar.NewReader(r)
	text, err := readSmall(t, "manifest.json", maxManifest)
	if err != nil {
		return nil, err
	}

	sigText, err := readSmall(t, "manifest.sig", maxSignature)
	if err != nil {
		return nil, err
	}

	sig, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(sigText)))
	if err != nil || !slices.ContainsFunc(keys,
		func(k ed25519.PublicKey) bool { return ed25519.Verify(k, text, sig) }) {
		return nil, errSignature
	}

	b := &Reader{tar: t}
	if err := json.Unmarshal(text, &b.Manifest); err != nil {
		return nil, fmt.Errorf("bundle: manifest: %w", err)
	}

	return b, b.Manifest.Check()
}

func readSmall(t *tar.Reader, name string, limit int64) ([]byte, error) {
	h, err := t.Next()
	if err != nil {
		return nil, fmt.Errorf("bundle: this is no bundle of a version: %w", err)
	}
	if h.Name != name || h.Typeflag != tar.TypeReg || h.Size > limit {
		return nil, fmt.Errorf("bundle: %q where %s should be", h.Name[:min(len(h.Name), 100)], name)
	}
	b, err := io.ReadAll(io.LimitReader(t, limit))
	if err != nil {
		return nil, fmt.Errorf("bundle: %s: %w", name, err)
	}
	return b, nil
}

// Next returns the next part. The part's data is verified only when its reader returns io.EOF; if
// size or digest differ from the manifest, the reader returns another error. After the last part
// Next returns io.EOF.
func (b *Reader) Next() (Part, io.Reader, error) {
	if b.next == len(b.Manifest.Parts) {
		return Part{}, nil, io.EOF
	}
	p := b.Manifest.Parts[b.next]
	b.next++
	h, err := b.tar.Next()
	if err != nil {
		return p, nil, fmt.Errorf("bundle: %s: %w", p.Name, err)
	}
	if h.Name != p.Name || h.Typeflag != tar.TypeReg || h.Size != p.Size {
		return p, nil, fmt.Errorf("bundle: %s is not as the manifest says", p.Name)
	}
	return p, &proven{reader: b.tar, part: p, sum: sha256.New()}, nil
}

type proven struct {
	reader io.Reader
	part   Part
	read   int64
	sum    hash.Hash
}

func (p *proven) Read(b []byte) (int, error) {
	n, err := p.reader.Read(b)
	p.sum.Write(b[:n])
	p.read += int64(n)
	if err == io.EOF && (p.read != p.part.Size || hex.EncodeToString(p.sum.Sum(nil)) != p.part.SHA256) {
		return n, fmt.Errorf("bundle: %s is damaged: its digest is not that of the manifest", p.part.Name)
	}
	return n, err
}

// GenerateKey returns a key pair as PEM files: PKCS #8 and SubjectPublicKeyInfo.
func GenerateKey() (private, public []byte, err error) {
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, nil, fmt.Errorf("bundle: %w", err)
	}
	a, err1 := x509.MarshalPKCS8PrivateKey(key)
	b, err2 := x509.MarshalPKIXPublicKey(pub)
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, fmt.Errorf("bundle: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{
		Type:  "PRIVATE KEY",
		Bytes: a,
	}), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: b}), nil
}

// PrivateKey returns the private key in a PEM text.
func PrivateKey(text []byte) (ed25519.PrivateKey, error) {
	if block, _ := pem.Decode(text); block != nil {
		if k, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if key, ok := k.(ed25519.PrivateKey); ok {
				return key, nil
			}
		}
	}
	return nil, errors.New("bundle: not an ed25519 private key in PEM (PKCS #8)")
}

// publicKey returns the public key in a PEM text.
func publicKey(text []byte) (ed25519.PublicKey, error) {
	if block, _ := pem.Decode(text); block != nil {
		if k, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
			if key, ok := k.(ed25519.PublicKey); ok {
				return key, nil
			}
		}
	}
	return nil, errors.New("bundle: not an ed25519 public key in PEM")
}

// Keys returns the public keys in all files NAME.pem of the folders. It ignores missing folders.
func Keys(dirs ...string) (out []ed25519.PublicKey, err error) {
	for _, d := range dirs {
		found, err := filepath.Glob(filepath.Join(d, "*.pem"))
		if err != nil {
			return nil, fmt.Errorf("bundle: %w", err)
		}

		for _, path := range found {
			f, err := os.Open(path)
			if err != nil {
				return nil, fmt.Errorf("bundle: %w", err)
			}

			text, err := io.ReadAll(io.LimitReader(f, 16<<10))
			f.Close()
			if err != nil {
				return nil, fmt.Errorf("bundle: %w", err)
			}

			k, err := publicKey(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}

			out = append(out, k)
		}
	}

	return out, nil
}
