package support

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/internal/command"
)

// commandTime bounds each program that is asked.
const commandTime = 10 * time.Second

// runBounded gives what a program printed, at most maxFile bytes, also of one that
// fails or is stopped.
func runBounded(ctx context.Context, limit time.Duration, argv ...string) ([]byte, error) {
	out, err := command.Exec{Limit: limit, MaxOutput: maxFile, Cut: true}.Run(ctx, argv)
	if err == nil && out.Exit != 0 { // what it said is given anyhow
		err = fmt.Errorf("exit status %d", out.Exit)
	}
	return slices.Concat(out.Stdout, out.Stderr), err
}

// checkAnswers reports whether a directory answers; it is asked by a child, since a call
// on a file system that hangs cannot be interrupted. One that is not there
// answers.
func checkAnswers(ctx context.Context, dir string) error {
	_, err := runBounded(ctx, commandTime, "sh", "-c",
		`for d in "$0" "$0"/pki; do ls -f "$d" >/dev/null 2>&1; done; true`, dir)
	return err
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
