// Package profile holds the contents of an image as data: the list of Debian packages, the kernels,
// the pinned Python packages of the renderers, and the files that replace or complement those of
// the packages. It runs nothing.
package profile

import (
	"bufio"
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"saltern/packaging"
)

//go:embed packages.list container.list flavours.yaml requirements.txt all:overlay
var files embed.FS

// Suite is the Debian release of the images.
const Suite = "bookworm"

// Flavour is one kernel flavour.
type Flavour struct {
	Name string `yaml:"-"`
	// Package is the Debian package that depends on the newest kernel.
	Package string `yaml:"package"`
	// More are packages that only machines with this kernel need.
	More []string `yaml:"more"`
	// Exclude are the folders below /lib/modules/VERSION to leave out.
	Exclude []string `yaml:"exclude"`
}

// File is one file of the overlay.
type File struct {
	Path    string // from the root, without a leading slash
	Mode    fs.FileMode
	Content []byte
}

var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)

// Packages lists the Debian packages of the appliance, sorted.
func Packages() ([]string, error) { return packages("packages.list") }

// ContainerPackages lists the Debian packages of the container image with Python.
func ContainerPackages() ([]string, error) { return packages("container.list") }

func packages(name string) ([]string, error) {
	b, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return parsePackages(name, b)
}

func parsePackages(name string, b []byte) (out []string, err error) {
	sc := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; sc.Scan(); n++ {
		line, _, _ := strings.Cut(sc.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if !packageName.MatchString(line) {
			return nil, fmt.Errorf("%s:%d: %q is no package name", name, n, line)
		}
		if slices.Contains(out, line) {
			return nil, fmt.Errorf("%s:%d: %s is there twice", name, n, line)
		}

		out = append(out, line)
	}

	slices.Sort(out)
	return out, sc.Err()
}

// Flavours returns the kernels by name.
func Flavours() (map[string]Flavour, error) {
	b, err := files.ReadFile("flavours.yaml")
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}

	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	var m map[string]Flavour
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("flavours.yaml: %w", err)
	}

	for name, f := range m {
		if !packageName.MatchString(f.Package) {
			return nil, fmt.Errorf("flavours.yaml: %s: package %q", name, f.Package)
		}

		for _, p := range f.More {
			if !packageName.MatchString(p) {
				return nil, fmt.Errorf("flavours.yaml: %s: package %q", name, p)
			}
		}

		f.Name = name
		m[name] = f
	}

	return m, nil
}

// Requirements returns the pip requirements file of the renderers' Python packages, each with its
// version and hash.
func Requirements() ([]byte, error) {
	b, err := files.ReadFile("requirements.txt")
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return b, nil
}

// Overlay lists the files of the overlay, sorted by path. Their modes depend on their paths, not on
// the checkout: programs below libexec, scripts of the initial RAM disk, and scripts of the message
// of the day are executable; sudo's files are 0440.
func Overlay() (out []File, err error) {
	err = fs.WalkDir(files, "overlay", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		b, err := files.ReadFile(p)
		if err != nil {
			return err
		}

		p = strings.TrimPrefix(p, "overlay/")
		out = append(out, File{Path: p, Mode: modeOf(p), Content: b})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}

	out = append(out, File{Path: "usr/lib/systemd/system/saltern-vip.service", Mode: 0o644, Content: packaging.Virtual},
		File{Path: "usr/lib/sysusers.d/saltern.conf", Mode: 0o644, Content: packaging.Accounts})
	for _, name := range []string{"saltern-pam.socket", "saltern-pam@.service"} {
		b, err := packaging.PAM.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("profile: %w", err)
		}

		out = append(out,
			File{
				Path:    "usr/lib/systemd/system/" + name,
				Mode:    0o644,
				Content: bytes.ReplaceAll(b, []byte("/usr/local/bin/"), []byte("/usr/bin/")),
			})
	}

	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

func modeOf(p string) fs.FileMode {
	dir := path.Dir(p)
	switch {
	case strings.HasPrefix(p, "usr/libexec/"), strings.HasPrefix(p, "etc/update-motd.d/"),
		strings.HasPrefix(p, "etc/initramfs-tools/hooks/"),
		strings.HasPrefix(p, "etc/initramfs-tools/scripts/"):
		return 0o755
	case dir == "etc/sudoers.d":
		return 0o440
	}
	return 0o644
}
