package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"saltern/cmd/internal/tty"
)

// yesFlag adds the flag --yes to cmd, a verb that removes something, and returns its value.
func yesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("yes", false, "do not ask (needed where there is no terminal)")
}

// confirm asks the user before something is removed. effect describes the consequences, word is the
// word that the user must type. Without a terminal confirm returns an error that mentions --yes.
func confirm(cmd *cobra.Command, yes bool, effect, word string) error {
	if yes {
		return nil
	}

	in := cmd.InOrStdin()
	if !tty.Is(in) {
		return misused("%s: nothing was done. %s To do it: --yes", cmd.Name(), effect)
	}

	fmt.Fprintf(cmd.ErrOrStderr(), "%s\nType %s to go on: ", effect, word)
	line, err := bufio.NewReader(io.LimitReader(in, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: nothing was done: reading the answer: %w", cmd.Name(), err)
	}
	if strings.TrimSpace(line) != word {
		return fmt.Errorf("%s: nothing was done: the answer was not %s", cmd.Name(), word)
	}

	return nil
}
