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

// OwnDir is the folder of the administrator's rules on the image. The rules are statements of the
// chain "own", which the input chain evaluates last.
const OwnDir = "/etc/nftables.d"

const (
	ownChain = "own"
	// Bounds of OwnDir: the number of files, and the bytes of one file. A file beyond the bounds is
	// not loaded, and is a fault.
	maxOwnFiles = 64
	maxOwnSize  = 64 << 10
	// ownTakes bounds the check of one file, because a name in the file may wait for a name server
	// that does not answer.
	ownTakes = 5 * time.Second
	// ownTakesTogether bounds the time for checking all files, one by one. Each file may take only
	// its share of the remaining time, so that a file with many unknown names costs the others no
	// time.
	ownTakesTogether = 40 * time.Second
)

// OwnRulesTake bounds [LoadOwn]: one check of all files together, one check of each alone, and the
// load.
const OwnRulesTake = ownTakes + ownTakesTogether + 3*nftTakes

// A Fault says why a file of the administrator's rules was not loaded.
type Fault struct {
	File  string // path of the file
	Cause string // nft's error message, with the line number if nft names one
}

// LoadOwn loads those files of dir that nft accepts into the chain "own", in one change and in the
// order of their names. faults says why the other files are not loaded. A file can only add
// statements to that chain. If the chain already has that content, LoadOwn does not change the
// chain, so that the chain's counters continue. loaded is the result now of the last call, or ""
// the first time.
func LoadOwn(ctx context.Context, dir, loaded string) (now string, faults []Fault, err error) {
	files, faults, err := ownFiles(dir)
	if err != nil {
		return loaded, nil, err
	}

	held, failed := listOwn(ctx)
	if failed == nil && loaded == contents(files)+held {
		return loaded, faults, nil // unchanged; a check would resolve names again
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

// An ownFile is the path and the content of one file of the administrator's rules.
type ownFile struct {
	path string
	text []byte
}

// ownName matches the names of files that nft can include.
var ownName = regexp.MustCompile(`^[A-Za-z0-9_.+-]+\.nft$`)

// ownFiles returns the files of dir that may be loaded, and why others may not.
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

// acceptedFiles returns in good the files that nft accepts together, and in faults why it refuses
// the others. If nft accepts all files, one check suffices; otherwise the checks take at most
// timeLimit.
func acceptedFiles(ctx context.Context, files []ownFile, timeLimit time.Duration) (good []ownFile, faults []Fault) {
	if checkOwn(ctx, files, min(timeLimit, ownTakes)) == nil {
		return files, nil
	}

	deadline := time.Now().Add(timeLimit)
	for i, f := range files {
		share := time.Until(deadline) / time.Duration(len(files)-i)
		// Even the last file gets this much time, which suffices for a file without names.
		limit := max(min(share, ownTakes), 100*time.Millisecond)
		if err := checkOwn(ctx, append(slices.Clone(good), f), limit); err != nil {
			faults = append(faults, Fault{f.path, ownCause(f.path, err)})
			continue
		}
		good = append(good, f)
	}

	return good, faults
}

// checkOwn checks files by nft without loading them. It takes at most limit.
func checkOwn(ctx context.Context, files []ownFile, limit time.Duration) error {
	out, err := command.Exec{Limit: limit, Cut: true, Stdin: ownScript(files)}.Run(ctx,
		[]string{"nft", "-c", "-f", "-"})
	if err == nil && out.Exit != 0 {
		err = errors.New(string(out.Stderr))
	}
	return err
}

// ownScript returns the commands that replace the content of the chain "own" by files.
func ownScript(files []ownFile) string {
	var b strings.Builder
	fmt.Fprintf(&b, "flush chain inet %s %s\n", Table, ownChain)
	for _, f := range files {
		fmt.Fprintf(&b, "table inet %s {\nchain %s {\ninclude \"%s\"\n}\n}\n", Table, ownChain, f.path)
	}
	return b.String()
}

// ownCause returns the line of nft's output about a file, with the position in the file.
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
			_, cause, _ := strings.Cut(rest, ": ") // skip the column numbers
			return "line " + number + ": " + strings.TrimPrefix(cause, "Error: ")
		}
	}

	first, _, _ := strings.Cut(text, "\n")
	return first
}

// contents returns a digest that differs between sets of files.
func contents(files []ownFile) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "%s\x00%s\x00", f.path, f.text)
	}
	return digest([]byte(b.String()))
}

// listOwn returns a digest of the chain "own" without its counters.
func listOwn(ctx context.Context) (string, error) {
	out, err := command.Do(ctx, command.Exec{Limit: nftTakes}, "nft", "-s", "-n", "list", "chain", "inet",
		Table, ownChain)
	if err != nil {
		return "", fmt.Errorf("firewall: nft: %w", err)
	}
	return digest(out), nil
}

// staysInChain returns an error for a text that could leave the chain. Such a text ends the block
// into which it is included, or includes another file that does so. Any other text consists of
// statements of the chain, or nft refuses it. staysInChain parses as nft's scanner does: comments
// end at the end of a line, and strings in double quotes may span several lines.
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

// changesSet matches the words that precede a set's name in a statement that changes the set. Such
// a statement could add the sender of a packet to the addresses of the nodes.
var changesSet = regexp.MustCompile(`\b(add|update|delete)\s+$`)

// isWord reports whether text has word at i as a whole word.
func isWord(text []byte, i int, word string) bool {
	letter := func(c byte) bool {
		return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	after := i + len(word)
	return bytes.HasPrefix(text[i:], []byte(word)) && (i == 0 || !letter(text[i-1])) &&
		(after == len(text) || !letter(text[after]))
}
