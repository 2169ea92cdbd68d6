package git

import (
	"testing"
	"time"

	"saltern/test/orphan"
)

// TestGitEndsWithTheMaster kills a process that runs git.
func TestGitEndsWithTheMaster(t *testing.T) {
	orphan.Check(t, "git", func(string) {
		_, err := runGit(t.Context(), time.Hour, localEnv(), []string{"git", "version"}, 1000)
		t.Error(err)
	})
}
