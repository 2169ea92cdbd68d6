package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func manualCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man",
		Short: "Write the manual pages",
		Long: `man prints the manual page of applianced, or writes those of all verbs into a
directory.`,
		Example: "  applianced man | man -l -\n  applianced man --dir /usr/local/share/man/man8",
		Args:    cobra.NoArgs,
	}

	cmd.Flags().StringVar(&dir, "dir", "", "write a page for each verb into this directory")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		root := cmd.Root()
		root.DisableAutoGenTag = true // no date in the pages, so that equal input gives equal pages
		head := func() *doc.GenManHeader {
			date := time.Unix(0, 0).UTC()
			return &doc.GenManHeader{Section: "8", Source: "Saltern", Manual: "Saltern", Date: &date}
		}

		if dir != "" {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}

			if err := doc.GenManTreeFromOpts(root,
				doc.GenManTreeOptions{Header: head(), Path: filepath.Clean(dir), CommandSeparator: "-"}); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}

			return nil
		}

		var page bytes.Buffer
		if err := doc.GenMan(root, head(), &page); err != nil {
			return fmt.Errorf("manual page: %w", err)
		}

		_, err := page.WriteTo(cmd.OutOrStdout())
		return err
	}

	return cmd
}
