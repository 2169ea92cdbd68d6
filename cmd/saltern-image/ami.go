package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/spf13/cobra"

	"saltern/image/ami"
)

func amiCommand() *cobra.Command {
	var region string
	var img ami.Image
	cmd := &cobra.Command{
		Use:   "ami DISK.raw",
		Short: "Make an EC2 image of a raw disk",
		Args:  cobra.ExactArgs(1),
		Long: `ami sends the disk's blocks into a snapshot and registers it; no instance helps. The
credentials are those of the environment: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN. They need ebs:StartSnapshot,
ebs:PutSnapshotBlock, ebs:CompleteSnapshot, ec2:CreateTags,
ec2:DescribeSnapshots and ec2:RegisterImage.`,
		Example: `  eval "$(aws configure export-credentials --format env)"
  saltern-image ami dist/saltern-cloud.raw --region eu-central-1 --name saltern-1.0`,
	}

	f := cmd.Flags()
	f.StringVar(&region, "region", os.Getenv("AWS_REGION"), "where to")
	f.StringVar(&img.Name, "name", "saltern", "name of the image, which must be new")
	f.StringVar(&img.Description, "description", "A node of a highly available Salt master",
		"description of image and snapshot")
	f.IntVar(&img.VolumeGiB, "volume", 0, "size of the root volume in GiB (default: that of the disk)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := ami.New(ami.Config{Region: region, Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
			Credentials: aws.Credentials{
				AccessKeyID:     os.Getenv("AWS_ACCESS_KEY_ID"),
				SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
				SessionToken:    os.Getenv("AWS_SESSION_TOKEN"),
			}})
		if err != nil {
			return err
		}

		disk, err := os.Open(args[0])
		if err != nil {
			return fmt.Errorf("ami: %w", err)
		}
		defer disk.Close()

		fi, err := disk.Stat()
		if err != nil {
			return fmt.Errorf("ami: %w", err)
		}

		image, snapshot, err := c.Upload(cmd.Context(), disk, fi.Size(), img)
		if err != nil {
			return err
		}

		_, err = fmt.Fprintf(cmd.OutOrStdout(), "image %s, snapshot %s\n", image, snapshot)
		return err
	}

	return cmd
}
