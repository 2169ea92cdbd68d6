package tree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"saltern/image/profile"
)

// pythonHome is a virtual environment in the tree: the release's own Python with Salt's library.
const pythonHome = "opt/saltern/python"

// tools lists the programs of Salt's library that the image has, with the function that each calls.
// The names salt, salt-key and so on belong to our own programs.
var tools = map[string]string{"salt-run": "salt_run", "salt-ssh": "salt_ssh", "salt-call": "salt_call"}

// python installs the packages that requirements.txt pins. Packages without a wheel are compiled
// with the machine's python3, which must have the same version as the tree's.
func (b *builder) python(ctx context.Context) error {
	if !b.Python {
		return nil
	}

	version := filepath.Base(newest(b.pathOf("usr/lib/python3.*")))
	out, err := b.output(ctx, "python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])")
	if err != nil {
		return err
	}

	if host := strings.TrimSpace(string(out)); host != version {
		return fmt.Errorf("the tree has %s, this machine %s: build on a machine of the same Debian release",
			version, host)
	}

	text, err := profile.Requirements()
	if err != nil {
		return err
	}

	req := filepath.Join(b.Work, "requirements.txt")
	venv := filepath.Join(b.Work, "pip")
	site := b.pathOf(filepath.Join(pythonHome, "lib", version, "site-packages"))
	if err := errors.Join(os.MkdirAll(b.Work, 0o755), os.WriteFile(req, text, 0o644),
		os.MkdirAll(site, 0o755)); err != nil {
		return err
	}

	kept, err := b.pythonStore(text)
	if err != nil {
		return err
	}

	if _, err := os.Stat(kept); err == nil {
		if err := b.runCommand(ctx, "tar", "-xpf", kept, "-C", b.dir, "--numeric-owner"); err != nil {
			return err
		}
		return b.pythonEnvironment(version)
	}

	if err := b.runCommand(ctx, "python3", "-m", "venv", venv); err != nil {
		return err
	}

	args := []string{"CFLAGS=-O2 -g0", filepath.Join(venv, "bin/pip"), "install", "-q", "--no-input",
		"--disable-pip-version-check", "--require-hashes", "--no-deps", "--no-compile",
		"--target", site, "-r", req}
	if b.Cache != "" {
		args = append(args, "--cache-dir", filepath.Join(b.Cache, "pip"))
	}

	if err := b.runCommand(ctx, "env", args...); err != nil {
		return err
	}

	if err := errors.Join(nameless(site), b.pythonEnvironment(version)); err != nil {
		return err
	}

	// Python cannot store compiled files on a read-only system, so compile them here, without times
	// in the files.
	err = b.chroot(ctx, "/"+pythonHome+"/bin/python3", "-m", "compileall", "-q", "-j", "0",
		"--invalidation-mode", "unchecked-hash", "/"+pythonHome+"/lib")
	if err != nil {
		return err
	}

	if err := b.runCommand(ctx, "tar", "-cf", kept+".part", "-C", b.dir, "--numeric-owner",
		pythonHome+"/lib"); err != nil {
		return err
	}

	return os.Rename(kept+".part", kept)
}

// pythonStore returns the path of the installed library in the cache. The library is beside the
// packages with which it was compiled, and its name contains the hash of the requirements.
func (b *builder) pythonStore(requirements []byte) (string, error) {
	dir, _, _, err := b.findStore()
	sum := sha256.Sum256(requirements)
	return filepath.Join(dir, "python-"+hex.EncodeToString(sum[:8])+".tar"), err
}

// nameless removes from the library texts that identify the machine that built it.
func nameless(site string) error {
	records, err := filepath.Glob(filepath.Join(site, "*.dist-info", "RECORD"))
	if err != nil {
		return err
	}
	for _, r := range append(records, filepath.Join(site, "bin"), filepath.Join(site, "share")) {
		if err := os.RemoveAll(r); err != nil {
			return err
		}
	}
	return nil
}

// pythonEnvironment makes the folder pythonHome a virtual environment.
func (b *builder) pythonEnvironment(version string) error {
	bin := b.pathOf(filepath.Join(pythonHome, "bin"))
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}

	err := errors.Join(
		makeLink("/usr/bin/"+version, filepath.Join(bin, "python3")),
		makeLink("python3", filepath.Join(bin, "python")),
		b.writeFile(filepath.Join(pythonHome, "pyvenv.cfg"),
			"home = /usr/bin\ninclude-system-site-packages = false\n", 0o644),
		// The renderers first look for Python at this path, which Salt's own packages use.
		makeLink("/"+pythonHome, b.pathOf("opt/saltstack/salt")),
		b.writeFile("etc/profile.d/saltern.sh", "export SALTERN_PYTHON_SALT_RUN=/"+pythonHome+"/bin/salt-run\n", 0o644),
	)

	for name, function := range tools {
		text := "#!/" + pythonHome + "/bin/python3\nimport sys\nfrom salt.scripts import " + function +
			"\nsys.exit(" + function + "())\n"
		err = errors.Join(err, b.writeFile(filepath.Join(pythonHome, "bin", name), text, 0o755))
	}

	return err
}
