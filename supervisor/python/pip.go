package python

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"saltern/internal/command"
	"saltern/internal/printable"
)

//go:embed pip.py
var pipScript string

// reportName is the name of the file in which pip writes what it chose. maxReport is the largest
// size of that file in bytes.
const (
	reportName = "report.json"
	maxReport  = 64 << 20
)

// requirement matches a package name with versions (PEP 508) that pip looks up in an index. It
// matches no requirement that leads elsewhere: to a URL, a folder or a program that fetches.
var requirement = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)` + // name
	`(\[[A-Za-z0-9._, -]+\])?\s*` + // extras
	`((?:[<>=!~]=?=?\s*[0-9A-Za-z.*+!_-]+\s*,?\s*)*)` + // versions
	`(;[^@/\\#]+)?$`) // markers

// hashOption is one hash of a line of requirements.
var hashOption = regexp.MustCompile(`\s--hash[= ]sha256:([0-9a-f]{64})(\s|$)`)

// Requirement is a package that pip should find.
type Requirement struct {
	Text   string   // such as name==1.0
	Hashes []string // SHA-256 sums of acceptable wheels; empty: any wheel is acceptable
}

// packageName returns the package's name.
func (r Requirement) packageName() string { return Canonical(requirementName(r.Text)) }

func (r Requirement) validate() error {
	if !requirement.MatchString(r.Text) || len(r.Text) > 500 {
		return fmt.Errorf("%.100q is neither a wheel's file nor a name of a package with versions, "+
			"such as saltext.vault==1.3.0",
			r.Text)
	}
	return nil
}

// ParseRequirements parses a file of requirements: names with versions and hashes, as pip-compile
// and pip hash write them. Other options of pip are errors.
func ParseRequirements(text string) ([]Requirement, error) {
	var out []Requirement
	joined := strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", " ")
	for line := range strings.Lines(joined) {
		if i := strings.Index(" "+line, " #"); i >= 0 {
			line = line[:i]
		}

		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}

		var r Requirement
		for m := hashOption.FindStringSubmatchIndex(line); m != nil; m = hashOption.FindStringSubmatchIndex(line) {
			r.Hashes = append(r.Hashes, line[m[2]:m[3]])
			line = line[:m[0]] + " " + line[m[3]:]
		}

		r.Text = strings.TrimSpace(line)
		if err := r.validate(); err != nil {
			return nil, err
		}

		if out = append(out, r); len(out) > maxPackages {
			return nil, fmt.Errorf("more than %d packages", maxPackages)
		}
	}

	if len(out) == 0 {
		return nil, errors.New("there is no package in it")
	}

	return out, nil
}

// resolver runs pip, which finds packages and downloads their wheels.
type resolver struct {
	facts
	dir   string // temporary folder, to which only this account can write
	wheel string // folder with the wheels that the administrator provides
	index string // address of an index; empty: the index in pip's configuration and environment
	off   bool   // use no index
}

// passed matches the environment variables by which an administrator configures pip. pip gets no
// other variables.
var passed = regexp.MustCompile(`^(` +
	`PIP_(INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|CERT|CLIENT_CERT|PROXY|TRUSTED_HOST|DEFAULT_TIMEOUT|` +
	`TIMEOUT|RETRIES|CONFIG_FILE)|` +
	`(?i:https?_proxy|no_proxy|all_proxy)|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)=`)

func (r *resolver) runPip(ctx context.Context, args ...string) error {
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + r.dir, "TMPDIR=" + r.dir,
		"PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_NO_INPUT=1"}
	for _, v := range os.Environ() {
		if passed.MatchString(v) && !(r.off && strings.HasPrefix(v, "PIP_")) {
			env = append(env, v)
		}
	}

	if r.index != "" { // in the environment: as an argument, the address would show its password
		env = append(env, "PIP_INDEX_URL="+r.index)
	}

	args = append([]string{r.path, "-I", "-B", "-c", pipScript}, args...)
	args = append(args, "--only-binary", ":all:", "--no-cache-dir", "--progress-bar", "off", "--find-links", r.wheel)
	if r.off {
		args = append(args, "--no-index")
	}

	// The limit is long, because pip may download much.
	out, err := command.Exec{Limit: 15 * time.Minute, MaxOutput: 64 << 20, Env: env}.Run(ctx, sandboxed(r.as, !r.off, args...))
	switch {
	case err != nil:
		return fmt.Errorf("run pip: %w", withoutProgram(err))
	case strings.Contains(string(out.Stderr), "No module named pip"):
		return fmt.Errorf("%s has no pip to look for packages with; "+
			"give the wheels themselves, with all that they need",
			r.path)
	case out.Exit != 0:
		text := string(out.Stderr)
		if _, why, ok := strings.Cut(string(out.Stdout), "The conflict is caused by:"); ok {
			text = "these do not go together: " + why + text
		}

		text = strings.ReplaceAll(text, r.dir+"/", "")
		for _, secret := range []string{r.index, os.Getenv("PIP_INDEX_URL"), os.Getenv("PIP_EXTRA_INDEX_URL")} {
			if secret != "" {
				text = strings.ReplaceAll(text, secret, "the index")
			}
		}

		return fmt.Errorf("pip says: %s", printable.Brief(text, 1500))
	}

	return nil
}

// found is a wheel that pip has chosen.
type found struct {
	Name, Version, Hash string
	requested           bool
}

// resolve calls pip to choose versions for the packages in requested. The versions of Salt's own
// packages and of those in keep stay.
func (r *resolver) resolve(ctx context.Context, requested []Requirement, keep []Package) ([]found, error) {
	var pins, want strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.Packages)) {
		fmt.Fprintf(&pins, "%s==%s\n", name, r.Packages[name])
	}

	for _, k := range keep {
		fmt.Fprintf(&pins, "%s==%s\n", k.Name, k.Version)
	}

	for _, q := range requested {
		fmt.Fprintln(&want, q.Text)
	}

	if err := errors.Join(r.writeText("pins.txt", pins.String()), r.writeText("want.txt", want.String())); err != nil {
		return nil, err
	}

	err := r.runPip(ctx, "install", "--dry-run", "--report", filepath.Join(r.dir, reportName), "-c",
		filepath.Join(r.dir, "pins.txt"), "-r", filepath.Join(r.dir, "want.txt"))
	if err != nil {
		return nil, err
	}

	var text []byte
	root, err := os.OpenRoot(r.dir)
	if err == nil {
		text, err = readText(root, reportName, maxReport)
		root.Close()
	}

	if err != nil {
		return nil, fmt.Errorf("read what pip chose: %w", err)
	}

	var report struct {
		Install []struct {
			Metadata  struct{ Name, Version string }
			Requested bool
			Download  struct {
				Archive struct {
					Hashes map[string]string `json:"hashes"`
				} `json:"archive_info"`
			} `json:"download_info"`
		}
	}

	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("read what pip chose: %w", err)
	}

	var out []found
	for _, i := range report.Install {
		out = append(out,
			found{Canonical(i.Metadata.Name), i.Metadata.Version, i.Download.Archive.Hashes["sha256"], i.Requested})
	}

	if len(out) > maxPackages {
		return nil, fmt.Errorf("pip chose %d packages, %d are possible", len(out), maxPackages)
	}

	return out, nil
}

func (r *resolver) writeText(name, content string) error {
	return os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o644)
}

// fetchWheels downloads the chosen wheels and returns their folder.
func (r *resolver) fetchWheels(ctx context.Context, chosen []found) (string, error) {
	var want strings.Builder
	for _, c := range chosen {
		if !plainName.MatchString(c.Name) || !plainVersion.MatchString(c.Version) {
			return "", fmt.Errorf("pip chose %.100q %.100q, which is no name with a version", c.Name, c.Version)
		}

		fmt.Fprintf(&want, "%s==%s", c.Name, c.Version)
		if len(c.Hash) == 64 {
			fmt.Fprintf(&want, " --hash=sha256:%s", c.Hash)
		}

		fmt.Fprintln(&want)
	}

	if err := r.writeText("chosen.txt", want.String()); err != nil {
		return "", err
	}

	to := filepath.Join(r.dir, "wheels")
	err := r.runPip(ctx, "download", "--no-deps", "-d", to, "-r", filepath.Join(r.dir, "chosen.txt"))
	return to, err
}

// sandboxed returns the command line that runs a program on untrusted files: under the account,
// within limits, and with a network only if network is set.
func sandboxed(account *syscall.Credential, network bool, argv ...string) []string {
	out := []string{"prlimit", "--as=" + strconv.Itoa(4<<30), "--fsize=" + strconv.Itoa(2*maxWheel), "--core=0", "--"}
	if !network && os.Geteuid() == 0 {
		out = append(out, "unshare", "--net", "--ipc", "--")
	}
	if account != nil {
		out = append(out, "setpriv", "--reuid", strconv.Itoa(int(account.Uid)), "--regid",
			strconv.Itoa(int(account.Gid)), "--clear-groups", "--no-new-privs", "--bounding-set", "-all", "--")
	}
	return append(out, argv...)
}
