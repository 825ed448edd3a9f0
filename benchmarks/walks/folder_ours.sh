# Two folders of images: prior, ten of each new class, predictions, a certificate and pages, with Posterity's command line.
posterity prior learn digits --out prior
posterity data split letters few rest --per-class 10
posterity adapt prior few --out fit
posterity predict fit rest --out ours.csv --page predictions.html
posterity certify fit --folds 3 --out certificate.json --page certificate.html
posterity evaluate fit rest --page evaluation.html --json
