package storage

import "io"

func copyMain([]string, io.Writer, io.Writer) int { return 2 }
