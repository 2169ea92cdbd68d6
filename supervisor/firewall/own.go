package firewall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"saltern/internal/command"
	"saltern/internal/durable"
)

// OwnDir holds the administrator's rules on the image: statements of the chain
// "own", which the input chain asks last.
const OwnDir = "/etc/nftables.d"

const (
	ownChain = "own"
	// Bounds of OwnDir. A file past them is left out, with a fault.
	maxOwnFiles = 64
	maxOwnSize  = 64 << 10
	// ownTakes bounds the check of one file: a name in it may wait for a name
	// server that is away.
	ownTakes = 5 * time.Second
	// ownTakesTogether bounds the checks of all files, one by one. Each may take its share of the
	// rest, so that a file with many unknown names costs the others no time.
	ownTakesTogether = 40 * time.Second
)

// OwnRulesTake bounds [LoadOwn]: the check of all files in one and of each alone, and the load.
const OwnRulesTake = ownTakes + ownTakesTogether + 3*nftTakes

// A Fault says why a file of the administrator's rules is left out.
type Fault struct {
	File  string // its path
	Cause string // with the line, where there is one
}

// LoadOwn fills the chain "own" in one change with those files of dir that nft accepts, in the
// order of their names. It returns why the others are left out. A file can only add statements to
// that chain. LoadOwn leaves the chain alone when it already has that content, so that its
// counters continue: loaded is the result of the call before, or "" the first time.
func LoadOwn(ctx context.Context, dir, loaded string) (now string, faults []Fault, err error) {
	files, faults, err := ownFiles(dir)
	if err != nil {
		return loaded, nil, err
	}

	held, failed := listOwn(ctx)
	if failed == nil && loaded == contents(files)+held {
		return loaded, faults, nil // nft would ask for their names again, and name servers may be away
	}

	good, refused := acceptedFiles(ctx, files, ownTakesTogether)
	faults = append(faults, refused...)

	want := contents(good)
	if failed == nil && loaded == want+held {
		return loaded, faults, nil
	}

	if err := runNft(ctx, ownScript(good)); err != nil {
		return "", faults, err
	}

	held, err = listOwn(ctx)
	return want + held, faults, err
}

// An ownFile is one file of the administrator's rules, as it was read.
type ownFile struct {
	path string
	text []byte
}

// ownName matches the names of files that nft can include.
var ownName = regexp.MustCompile(`^[A-Za-z0-9_.+-]+\.nft$`)

// ownFiles reads the files of dir that may be loaded.
func ownFiles(dir string) (files []ownFile, faults []Fault, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("firewall: own rules: %w", err)
	}

	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !strings.HasSuffix(e.Name(), ".nft") {
			continue
		}
		if !ownName.MatchString(e.Name()) {
			faults = append(faults, Fault{path, "its name has characters other than letters, digits and . _ + -"})
			continue
		}
		if len(files) == maxOwnFiles {
			faults = append(faults, Fault{path, fmt.Sprintf("there are more than %d files", maxOwnFiles)})
			continue
		}

		text, err := durable.Read(path, maxOwnSize)
		if err == nil {
			err = staysInChain(text)
		}

		if err != nil {
			faults = append(faults, Fault{path, err.Error()})
			continue
		}

		files = append(files, ownFile{path, text})
	}

	return files, faults, nil
}

// acceptedFiles divides files into those that nft accepts together and the others.
// It asks nft once when all are right, else for within at most.
func acceptedFiles(ctx context.Context, files []ownFile, within time.Duration) (good []ownFile, faults []Fault) {
	if checkOwn(ctx, files, min(within, ownTakes)) == nil {
		return files, nil
	}

	deadline := time.Now().Add(within)
	for i, f := range files {
		share := time.Until(deadline) / time.Duration(len(files)-i)
		// A file without names gets this much, whatever is left.
		limit := max(min(share, ownTakes), 100*time.Millisecond)
		if err := checkOwn(ctx, append(slices.Clone(good), f), limit); err != nil {
			faults = append(faults, Fault{f.path, ownCause(f.path, err)})
			continue
		}
		good = append(good, f)
	}

	return good, faults
}

// checkOwn lets nft check files without loading them, for limit at most.
func checkOwn(ctx context.Context, files []ownFile, limit time.Duration) error {
	out, err := command.Exec{Limit: limit, Cut: true, Stdin: ownScript(files)}.Run(ctx,
		[]string{"nft", "-c", "-f", "-"})
	if err == nil && out.Exit != 0 {
		err = errors.New(string(out.Stderr))
	}
	return err
}

// ownScript returns the commands that put files into the chain "own", and nothing else.
func ownScript(files []ownFile) string {
	var b strings.Builder
	fmt.Fprintf(&b, "flush chain inet %s %s\n", Table, ownChain)
	for _, f := range files {
		fmt.Fprintf(&b, "table inet %s {\nchain %s {\ninclude \"%s\"\n}\n}\n", Table, ownChain, f.path)
	}
	return b.String()
}

// ownCause returns the line of nft's output about a file, with its place.
func ownCause(path string, err error) string {
	if errors.Is(err, command.ErrTimeout) {
		return "nft did not end in time: a name in it, perhaps, and no name server that answers"
	}

	text := strings.TrimSpace(err.Error())
	for line := range strings.Lines(text) {
		place, ok := strings.CutPrefix(strings.TrimSpace(line), path+":")
		if !ok {
			continue
		}

		if number, rest, ok := strings.Cut(place, ":"); ok {
			_, cause, _ := strings.Cut(rest, ": ") // after the columns
			return "line " + number + ": " + strings.TrimPrefix(cause, "Error: ")
		}
	}

	first, _, _ := strings.Cut(text, "\n")
	return first
}

// contents returns a text that differs between sets of files.
func contents(files []ownFile) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "%s\x00%s\x00", f.path, f.text)
	}
	return digest([]byte(b.String()))
}

// listOwn returns the content of the chain "own" without its counters.
func listOwn(ctx context.Context) (string, error) {
	out, err := command.Do(ctx, command.Exec{Limit: nftTakes}, "nft", "-s", "-n", "list", "chain", "inet",
		Table, ownChain)
	if err != nil {
		return "", fmt.Errorf("firewall: nft: %w", err)
	}
	return digest(out), nil
}

// staysInChain refuses text that could end the block that it is included in, or include another
// file that does. Everything else in it is a statement of the chain, or refused by nft. It reads
// as nft's scanner does: comments to the end of a line, strings in double quotes, over several
// lines if need be.
func staysInChain(text []byte) error {
	const (
		code = iota
		comment
		quoted
	)

	state := code
	depth := 0
	line := 1
	for i, c := range text {
		if c == '\n' {
			line++
		}

		switch {
		case state == comment && c == '\n', state == quoted && c == '"':
			state = code
		case state != code:
		case c == '#':
			state = comment
		case c == '"':
			state = quoted
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == '@' && changesSet.Match(text[:i]):
			return fmt.Errorf("line %d: the sets of the image's rules are not changed here", line)
		case c == 'i' && isWord(text, i, "include"):
			return fmt.Errorf("line %d: include is not taken here: write the rules into this file", line)
		}

		if depth < 0 {
			return fmt.Errorf("line %d: } ends more than was begun: the file is to hold statements of the chain %q",
				line, ownChain)
		}
	}

	switch {
	case state == quoted:
		return fmt.Errorf("line %d: a string has no end", line)
	case depth > 0:
		return fmt.Errorf("line %d: %d { without }", line, depth)
	}

	return nil
}

// changesSet matches what precedes the name of a set that a statement changes. Such a statement
// would let the sender of a packet decide who is a node.
var changesSet = regexp.MustCompile(`\b(add|update|delete)\s+$`)

// isWord reports whether word stands at text[i:] by itself.
func isWord(text []byte, i int, word string) bool {
	letter := func(c byte) bool {
		return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	after := i + len(word)
	return bytes.HasPrefix(text[i:], []byte(word)) && (i == 0 || !letter(text[i-1])) &&
		(after == len(text) || !letter(text[after]))
}
