# A regression from a CSV file, with Posterity's command line.
posterity learn yacht-train.csv --target resistance --out boat
posterity predict boat yacht-test.csv --out ours.csv
posterity evaluate boat yacht-test.csv --json
